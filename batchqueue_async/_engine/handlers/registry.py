"""The registered handlers: which of them a type's items go to, and how many at once.

A take removes as many items as the largest batch may have; with adaptive limits, as
many as one batch of each handler together, since their items may wait in one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from batchqueue_async._engine.handlers.registration import (
    DEFAULT,
    Attached,
    HandlerSettings,
    Registration,
    attached,
)
from batchqueue_async._engine.partitions.weak_type_dict import WeakTypeDict

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.deadlock_detector import DeadlockDetector


class HandlerRegistry:
    """Registrations by type; an item goes to its type's, or its nearest base's."""

    __slots__ = (
        "_by_type",
        "_detector",
        "_known",
        "_let_go",
        "_let_go_at_work",
        "_locked",
        "_queue",
        "attached",
        "consumer",
        "has_retired",
        "have_hooks",
        "have_on_close",
        "in_flight",
        "most_taken",
        "resolved",
        "retired",
        "settings",
        "take_limit",
        "version",
    )

    def __init__(
        self, consumer: object | None, settings: HandlerSettings = DEFAULT
    ) -> None:
        # The settings of the queue.
        self.settings = settings
        # How many items a take removes.
        self.most_taken = settings.fixed_batch
        # Only where limits differ, or are adaptive: a batch may have to be smaller.
        self.take_limit: TakeLimit | None = None
        self.consumer = None
        if consumer is not None:
            self.consumer = Registration(consumer, settings=settings)
            self._follow(self.consumer, None)
        self._by_type: dict[type, Registration] = {}
        # One registration of each handler, by identity; it keeps the handler alive.
        self._locked: dict[int, Registration] = {}
        # Replaced or removed, without `on_close`: with batches left, their locks are in
        # use. Seldom any, and never many: an empty tuple takes no memory.
        self._let_go: Sequence[Registration] = ()
        # How many of them were at work at the last look.
        self._let_go_at_work = 0
        # Returns the registrations whose batches are taken and not settled.
        self.in_flight: Callable[[], Iterable[Registration | None]] = tuple
        self._known: WeakTypeDict[Registration | None] = WeakTypeDict(self._by_type)
        self.resolved = self._known.near
        # Replaced or removed, and their `on_close` is still to be called.
        self.retired: tuple[Registration, ...] = ()
        # Whether `take_retired` has anything to look at.
        self.has_retired = False
        # Whether there may be a handler with `on_idle` or `on_tick`.
        self.have_hooks = self.consumer is not None and self.consumer.has_hooks
        self.have_on_close = bool(self.consumer and self.consumer.on_close)
        # The queue, while it runs, and those of its handlers that were told of it.
        self._queue: object = None
        self._detector: DeadlockDetector | None = None
        self.attached: WeakSet[Attached] | None = None
        # Grows with each change, so that what is derived can be cached.
        self.version = 0

    def __iter__(self) -> Iterator[Registration]:
        if self.consumer is not None:
            yield self.consumer
        yield from self._by_type.values()

    @property
    def types(self) -> Collection[type]:
        """The types with a handler of their own, now and later."""
        return self._by_type

    def of_exactly(self, item_type: type) -> Registration | None:
        return self._by_type.get(item_type)

    def add(self, registration: Registration) -> None:
        """Register, in the place of what its type had before."""
        assert registration.item_type is not None
        # One handler has one lock, for all its types, also when it comes back.
        known = self._locked.setdefault(id(registration.handler), registration)
        registration.adopt(known)
        self.have_hooks |= registration.has_hooks
        self.have_on_close |= registration.on_close is not None
        replaced = self._by_type.get(registration.item_type)
        self._follow(registration, replaced)
        self._retire(replaced)
        # No call in between: what is near here is as of these registrations.
        self._by_type[registration.item_type] = registration
        self._tidy_locks()
        if self._queue is not None:
            self._attach(registration)

    def attach(self, queue: object, detector: DeadlockDetector) -> None:
        """Tell the handlers that want to know it, now and later, that `queue` runs."""
        self._queue, self._detector = queue, detector
        for registration in self:
            self._attach(registration)

    def detach(self) -> None:
        for each in self.attached or ():
            each.detach(self._queue)
        self._queue = self.attached = self._detector = None

    def _attach(self, registration: Registration) -> None:
        handler = attached(registration.handler)
        if handler is not None:
            assert self._detector is not None
            registration.lock.belongs_to(self._detector)
            if self.attached is None:
                self.attached = WeakSet()
            self.attached.add(handler)
            handler.attach(self._queue)

    def remove(self, item_type: type) -> Registration | None:
        removed = self._by_type.get(item_type)
        self._follow(None, removed)
        self._retire(removed)
        if removed is not None:
            # No call in between, as above.
            del self._by_type[item_type]
        self._tidy_locks()
        return removed

    def of(self, item_type: type) -> Registration | None:
        """Return what is registered for items of exactly this type, not a consumer."""
        try:
            return self.resolved[item_type]
        except KeyError:
            if self._known.recall(item_type):
                return self.resolved[item_type]
            found = self.nearest(item_type)
            self._known.add(item_type, found)
            return found

    def failing_with(self, error: MemoryError) -> Registration:
        """Return one that fails taken items for which there is no memory to sort."""

        def refuse(_: list[Any]) -> None:
            raise error

        return Registration(refuse, settings=self.settings)

    def of_identical(self, item_type: type) -> Registration | None:
        """Look up the registration of a type that cannot be hashed or compared."""
        known = {id(each): found for each, found in self._by_type.items()}
        # Not `item_type.__mro__`: a metaclass may have one of its own.
        mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(item_type)
        bases = (known.get(id(base)) for base in mro)
        return next((each for each in bases if each is not None), None)

    def nearest(self, item_type: type) -> Registration | None:
        """Look the registration up; remembers nothing, so threads may call it."""
        # `__mro__` only: a virtual ABC has no distance, so "nearest" has no meaning.
        for base in item_type.__mro__:
            # In one step: it may be taken out on the loop meanwhile.
            found = self._by_type.get(base)
            if found is not None:
                return found
        return None

    def limit_changed(self, registration: Registration) -> None:
        """Follow a registration's new limit, if it is still registered."""
        if self.take_limit is not None:
            self.take_limit.changed(registration)
            self.most_taken = self.take_limit.items

    def _follow(self, new: Registration | None, gone: Registration | None) -> None:
        """Make takes as large as the batches of the handlers that there are now."""
        limit = self.take_limit
        if limit is None:
            if new is None or new.max_batch == self.settings.max_batch:
                return
            limit = self.take_limit = TakeLimit(self.settings)
        if gone is not None:
            limit.remove(gone)
        if new is not None:
            limit.add(new)
        self.most_taken = limit.items

    def _retire(self, gone: Registration | None) -> None:
        """Keep one that is about to go until its `on_close`, and prepare the change.

        Before it goes: a signal handler may raise in between, and one that then stays
        is not closed, since it is still in use.
        """
        if gone is not None:
            self.has_retired = True
            if gone.ticks is not None:
                gone.ticks.leave()
            if gone.on_close is not None:
                self.retired = (*self.retired, gone)
            else:
                self._let_go = (*self._let_go, gone)
                # Amortised: those that are at rest are forgotten.
                if len(self._let_go) > 2 * self._let_go_at_work + SLACK:
                    self._forget_at_rest({*self.in_flight()})
        self.version += 1
        self._known.clear()

    def _forget_at_rest(self, in_flight: Collection[Registration | None]) -> None:
        self._let_go = [each for each in self._let_go if is_at_work(each, in_flight)]
        self._let_go_at_work = len(self._let_go)

    def _tidy_locks(self) -> None:
        in_use = len(self._by_type) + len(self.retired) + len(self._let_go)
        # Amortised: half of them can be forgotten.
        if len(self._locked) > 2 * in_use + SLACK:
            self._forget_locks()

    def _forget_locks(self) -> None:
        """Forget handlers that are neither registered nor at work.

        A retired one may come back before its `on_close`, and one with a batch before
        that is settled: then it must find its lock.
        """
        in_use = (*self._by_type.values(), *self.retired, *self._let_go)
        locks = {id(each.lock) for each in in_use}
        self._locked = {
            key: each for key, each in self._locked.items() if id(each.lock) in locks
        }

    def take_retired(self) -> list[Registration]:
        """Take retired handlers that got their last batch, and that no type uses."""
        in_flight = {*self.in_flight()}
        if self._let_go:
            self._forget_at_rest(in_flight)
            self._tidy_locks()
        self.has_retired = bool(self._let_go or self.retired)
        if not self.retired:
            return []
        # Handlers that are still at work are left: to close one would be to wait for
        # it.
        at_work = [each for each in self.retired if is_at_work(each, in_flight)]
        done = [each for each in self.retired if each not in at_work]
        self.retired = tuple(at_work)
        self.has_retired = bool(self._let_go or self.retired)
        self._tidy_locks()
        in_use = {id(each.handler) for each in (*self.retired, *self)}
        distinct = {id(each.handler): each for each in done}
        return [each for key, each in distinct.items() if key not in in_use]

    def put_back(self, retired: list[Registration]) -> None:
        """Put retired handlers back whose `on_close` was not called after all."""
        owed = [each for each in retired if not each.is_closed]
        self.retired = (*self.retired, *owed)
        self.has_retired |= bool(self.retired)

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
            if each.on_close is not None and each.is_open
        ]


class TakeLimit:
    """How many items a take removes, as handlers come, go, and change their limits."""

    def __init__(self, settings: HandlerSettings) -> None:
        self._most = settings.most
        queues = settings.max_batch
        # The largest declared limit; None if the queue has no limit of its own.
        self._largest = 0 if queues == "auto" else queues
        # The adaptive limits of handlers, and their sum.
        self._found: dict[Registration, int] = {}
        self._total = 0

    @property
    def items(self) -> int | None:
        if self._largest is None:
            return None
        return max(self._largest, self._total) or self._most

    def add(self, registration: Registration) -> None:
        most = registration.max_batch
        if registration.limit is not None:
            self._found[registration] = 0
            self.changed(registration)
        elif most is not None and self._largest is not None:
            self._largest = max(self._largest, most)

    def remove(self, registration: Registration) -> None:
        """Follow a handler that was replaced or removed; a declared limit stays."""
        self._total -= self._found.pop(registration, 0)

    def changed(self, registration: Registration) -> None:
        """Follow a new limit; that of a removed handler, still at work, is ignored."""
        known = self._found.get(registration)
        if known is not None and registration.max_batch is not None:
            self._found[registration] = registration.max_batch
            self._total += registration.max_batch - known


SLACK: Final = 16
"""So many that are out of use are remembered, however few are in use."""


def is_at_work(
    registration: Registration, in_flight: Collection[Registration | None]
) -> bool:
    """Whether a batch of it is taken and not settled, or a call is inside of it."""
    return registration in in_flight or not registration.lock.is_free
