"""The registered handlers, and which of them a type's items go to."""

from __future__ import annotations

from collections.abc import Iterator

from batchqueue_async._engine.registration import Registration


class Handlers:
    """Registrations by type; an item goes to its type's, or its nearest base's."""

    __slots__ = (
        "_by_type",
        "_consumer",
        "_gated",
        "_have_hooks",
        "_resolved",
        "retired",
        "version",
    )

    def __init__(self, consumer: object | None) -> None:
        self._consumer = None if consumer is None else Registration(consumer)
        self._by_type: dict[type, Registration] = {}
        # One registration of each handler, by identity; it keeps the handler alive.
        self._gated: dict[int, Registration] = {}
        self._resolved: dict[type, Registration | None] = {}
        # Replaced or removed: they are still owed their `on_close`.
        self.retired: list[Registration] = []
        self._have_hooks = self._consumer is not None
        # Grows with each change, so that what is derived can be cached.
        self.version = 0

    def __iter__(self) -> Iterator[Registration]:
        if self._consumer is not None:
            yield self._consumer
        yield from self._by_type.values()

    @property
    def have_hooks(self) -> bool:
        """Whether there may be a handler with `on_idle` or `on_flush`."""
        return self._have_hooks

    @property
    def consumer(self) -> Registration | None:
        return self._consumer

    def add(self, registration: Registration) -> Registration | None:
        """Register; returns the registration that it replaces."""
        assert registration.item_type is not None
        self._share_gate(registration)
        if registration.on_idle or registration.on_flush:
            self._have_hooks = True
        replaced = self._by_type.get(registration.item_type)
        self._by_type[registration.item_type] = registration
        self._changed(replaced)
        return replaced

    def remove(self, item_type: type) -> Registration | None:
        removed = self._by_type.pop(item_type, None)
        self._changed(removed)
        return removed

    def of(self, item_type: type) -> Registration | None:
        """Return the registration for items of exactly this type."""
        if self._consumer is not None:
            return self._consumer
        try:
            return self._resolved[item_type]
        except KeyError:
            found = self.nearest(item_type)
            self._resolved[item_type] = found
            return found

    def of_identical(self, item_type: type) -> Registration | None:
        """Do the same for a type that may not be hashed or compared."""
        known = {id(each): found for each, found in self._by_type.items()}
        # Not `item_type.__mro__`: a metaclass may have one of its own.
        mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(item_type)
        bases = (known.get(id(base)) for base in mro)
        return next((each for each in bases if each is not None), None)

    def _share_gate(self, registration: Registration) -> None:
        """Let one handler have one gate, for all its types, also when it comes back."""
        if len(self._gated) > 2 * len(self._by_type):
            # Amortised: what is registered, or still at work, is less than half.
            # A retired one may come back before its `on_close`.
            in_use = {id(each.gate) for each in (*self, *self.retired)}
            self._gated = {
                key: each
                for key, each in self._gated.items()
                if id(each.gate) in in_use or each.batches or not each.gate.is_free
            }
        known = self._gated.setdefault(id(registration.handler), registration)
        registration.gate = known.gate

    def nearest(self, item_type: type) -> Registration | None:
        """Look the registration up; remembers nothing, so threads may call it."""
        # `__mro__` only: a virtual ABC has no distance, so "nearest" has no meaning.
        for base in item_type.__mro__:
            # In one step: it may be taken out on the loop meanwhile.
            found = self._by_type.get(base)
            if found is not None:
                return found
        return None

    def _changed(self, gone: Registration | None) -> None:
        self._resolved.clear()
        self.version += 1
        if gone is not None and gone.on_close is not None:
            self.retired.append(gone)

    def take_retired(self) -> list[Registration]:
        """Take those that got their last batch, and that no other type uses."""
        if not self.retired:
            return []
        # Whoever took one that is at work would wait for it, and nothing else.
        done = [each for each in self.retired if each.is_at_rest]
        self.retired = [each for each in self.retired if not each.is_at_rest]
        in_use = {id(each.handler) for each in (*self.retired, *self)}
        distinct = {id(each.handler): each for each in done}
        return [each for key, each in distinct.items() if key not in in_use]

    def is_in_use(self, registration: Registration) -> bool:
        """Whether its handler is registered again, or will be closed later."""
        return any(
            each.handler is registration.handler for each in (*self.retired, *self)
        )

    def to_close(self) -> list[Registration]:
        """Return one registration per distinct handler, in order of registration."""
        distinct = {id(each.handler): each for each in (*self.retired, *self)}
        return [each for each in distinct.values() if each.on_close is not None]
