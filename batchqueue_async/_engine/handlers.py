"""The registered handlers, and which of them a type's items go to."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakSet

from batchqueue_async._engine.attached import Attached
from batchqueue_async._engine.registration import Registration
from batchqueue_async._engine.type_map import Pinned, TypeMap

# So many handlers that are out of use are remembered, however few are in use.
_SLACK = 16


class Handlers:
    """Registrations by type; an item goes to its type's, or its nearest base's."""

    __slots__ = (
        "_attached",
        "_by_type",
        "_consumer",
        "_gated",
        "_have_hooks",
        "_known",
        "_let_go",
        "_queue",
        "_resolved",
        "retired",
        "version",
    )

    def __init__(self, consumer: object | None) -> None:
        self._consumer = None if consumer is None else Registration(consumer)
        self._by_type: dict[type, Registration] = {}
        # One registration of each handler, by identity; it keeps the handler alive.
        self._gated: dict[int, Registration] = {}
        # Replaced or removed while they had batches: their gates are in use.
        self._let_go: list[Registration] | None = None
        self._known: TypeMap[Registration | None] = TypeMap(self._by_type)
        self._resolved = self._known.near
        # Replaced or removed: they are still owed their `on_close`.
        self.retired: list[Registration] = []
        self._have_hooks = self._consumer is not None and self._consumer.has_hooks
        # The queue, while it runs, and those of its handlers that know it.
        self._queue: object = None
        self._attached: WeakSet[Attached] | None = None
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

    @property
    def types(self) -> Pinned:
        """The types with a handler of their own, now and later."""
        return self._by_type

    def of_exactly(self, item_type: type) -> Registration | None:
        """Return the registration under this very type."""
        return self._by_type.get(item_type)

    def add(self, registration: Registration) -> Registration | None:
        """Register; returns the registration that it replaces."""
        assert registration.item_type is not None
        self._share_gate(registration)
        if registration.has_hooks:
            self._have_hooks = True
        replaced = self._by_type.get(registration.item_type)
        self._by_type[registration.item_type] = registration
        self._changed(replaced)
        if self._queue is not None:
            self._attach(registration.handler)
        return replaced

    def attach(self, queue: object) -> None:
        """Tell those who want to know it, now and later, that `queue` runs."""
        self._queue = queue
        for registration in self:
            self._attach(registration.handler)

    def detach(self) -> None:
        """Tell them that it does no more."""
        for each in self._attached or ():
            each.detach(self._queue)
        self._queue = self._attached = None

    def _attach(self, handler: object) -> None:
        if isinstance(handler, Attached):
            if self._attached is None:
                self._attached = WeakSet()
            self._attached.add(handler)
            handler.attach(self._queue)

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
            if self._known.recall(item_type):
                return self._resolved[item_type]
            found = self.nearest(item_type)
            self._known.add(item_type, found)
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
        self._known.clear()
        self.version += 1
        if gone is not None:
            if gone.on_close is not None:
                self.retired.append(gone)
            elif not gone.is_at_rest:
                self._let_go = self._let_go or []
                self._let_go.append(gone)
        self._tidy_gates()

    def _tidy_gates(self) -> None:
        let_go = 0 if self._let_go is None else len(self._let_go)
        in_use = len(self._by_type) + len(self.retired) + let_go
        # Amortised: half of them can be forgotten.
        if len(self._gated) > 2 * in_use + _SLACK:
            self._forget_gates()

    def _forget_gates(self) -> None:
        """Forget handlers that are neither registered nor at work.

        A retired one may come back before its `on_close`, and one with a batch before
        that is settled: then it must find its gate.
        """
        in_use = (*self._by_type.values(), *self.retired, *(self._let_go or ()))
        gates = {id(each.gate) for each in in_use}
        self._gated = {
            key: each for key, each in self._gated.items() if id(each.gate) in gates
        }

    def take_retired(self) -> list[Registration]:
        """Take those that got their last batch, and that no other type uses."""
        if self._let_go:
            at_work = [each for each in self._let_go if not each.is_at_rest]
            self._let_go = at_work or None
            self._tidy_gates()
        if not self.retired:
            return []
        # Whoever took one that is at work would wait for it, and nothing else.
        done = [each for each in self.retired if each.is_at_rest]
        self.retired = [each for each in self.retired if not each.is_at_rest]
        self._tidy_gates()
        in_use = {id(each.handler) for each in (*self.retired, *self)}
        distinct = {id(each.handler): each for each in done}
        return [each for key, each in distinct.items() if key not in in_use]

    def put_back(self, retired: list[Registration]) -> None:
        """Those that were taken, and whose `on_close` was not called after all."""
        self.retired.extend(each for each in retired if not each.is_closed)

    def is_in_use(self, registration: Registration) -> bool:
        """Whether its handler is registered again, or will be closed later."""
        return any(
            each.handler is registration.handler for each in (*self.retired, *self)
        )

    def to_close(self) -> list[Registration]:
        """Return one registration per distinct handler, in order of registration."""
        distinct = {id(each.handler): each for each in (*self.retired, *self)}
        return [
            each
            for each in distinct.values()
            if each.on_close is not None and not each.is_closed
        ]
