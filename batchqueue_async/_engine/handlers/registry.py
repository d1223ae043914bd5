"""The registered handlers: what to call, and which of them a type's items go to."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Hashable,
    Iterator,
)
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from batchqueue_async._engine.handler_stats import HandlerStats
from batchqueue_async._engine.handlers.attached_handler import Attached, attached
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    EXCLUSIVE,
    SHARED,
    HandlerLock,
)
from batchqueue_async._engine.handlers.hooks import Ticks
from batchqueue_async._engine.handlers.let_go import SLACK, InFlight, LetGo, is_at_work
from batchqueue_async._engine.handlers.meter import Meter
from batchqueue_async._engine.handlers.on_open import Opening
from batchqueue_async._engine.handlers.settings import DEFAULT, HandlerSettings
from batchqueue_async._engine.handlers.take_limit import TakeLimit, follow
from batchqueue_async._engine.partitions.type_map import Pinned, TypeMap
from batchqueue_async._policies.handler_checks import require_handler
from batchqueue_async._policies.sizing import Exact

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.deadlock_detector import DeadlockDetector

Consume = Callable[[list[Any]], Awaitable[object] | object]
Hook = Callable[[], Awaitable[object] | object]


class Registration:
    """A handler under its item type, or the queue's single consumer (no type)."""

    __slots__ = (
        "consume",
        "handler",
        "is_closed",
        "is_trusted",
        "item_type",
        "items",
        "label",
        "limit",
        "lock",
        "max_batch",
        "meter",
        "mode",
        "next_idle",
        "on_close",
        "on_error",
        "on_flush",
        "on_idle",
        "opening",
        "order",
        "retried",
        "retry",
        "settings",
        "settled",
        "ticks",
        "timeout",
        "weight",
    )

    def __init__(  # noqa: PLR0913 - all but the handler have a default
        self,
        handler: object,
        *,
        item_type: type | None = None,
        weight: Exact = 1,
        order: int = 0,
        mode: Hashable = SHARED,
        settings: HandlerSettings = DEFAULT,
    ) -> None:
        self.handler = handler
        self.item_type = item_type
        # How logs and stats name it.
        self.label = _label(handler, item_type)
        self.weight = weight
        # Registrations are numbered; a custom selector's handlers idle by number.
        self.order = order
        # Which other calls of `consume` may be inside of the handler with one.
        # Who takes one call at a time is waited for before any timeout runs.
        own = attached(handler)
        self.mode = EXCLUSIVE if own is not None and own.is_exclusive else mode
        self.lock = HandlerLock() if own is None else own.new_lock()
        if item_type is not None:
            # A consumer was checked when it was declared.
            require_handler("handler", handler)
        self.consume = cast("Consume", getattr(handler, "consume", handler))
        on_open = _hook(handler, "on_open")
        self.opening = None if on_open is None else Opening(on_open)
        self._open_first()
        on_tick = _hook(handler, "on_tick")
        self.ticks: Ticks | None = None
        if on_tick is not None:
            self.ticks = Ticks(on_tick, float(getattr(handler, "tick_every", 0.0)))
        self.on_idle = _hook(handler, "on_idle")
        self.on_flush = _hook(handler, "on_flush")
        self.on_close = _hook(handler, "on_close")
        self.next_idle = 0.0
        # Batches settled, the items of these; items tried again.
        self.settled = self.items = self.retried = 0
        self.settings = settings
        # What its batches have at most: as declared, or as found by trying so far.
        self.limit = settings.new_limit()
        self.max_batch = self.limit.size if self.limit else settings.fixed_batch
        self.retry, self.timeout = settings.retry, settings.timeout
        self.on_error = settings.on_error
        self.meter: Meter | None = None
        if settings.is_measured:
            self.meter = Meter(self.label, settings.listeners)
        # After `on_close` nothing of it is called any more. Whether its next call need
        # not be run in steps, since the last one was quick.
        self.is_closed = self.is_trusted = False

    @property
    def has_hooks(self) -> bool:
        """Whether it wants to be called without a batch while its queue runs."""
        return bool(self.on_idle or self.on_flush or self.ticks)

    @property
    def is_open(self) -> bool:
        """Whether its other hooks may be called."""
        return not self.is_closed and (self.opening is None or self.opening.is_done)

    def adopt(self, known: Registration) -> None:
        """Have in common with what else is of this handler what it has once."""
        self.lock = known.lock
        self.ticks = known.ticks
        if known is not self and self.opening is not None:
            self.opening = known.opening
            self._open_first()

    def _open_first(self) -> None:
        if self.opening is not None:
            consume = getattr(self.handler, "consume", self.handler)
            self.consume = self.opening.before(cast("Consume", consume))

    def stats(self, inside_for: float) -> HandlerStats:
        measured = (None, None, None) if self.meter is None else self.meter.read()
        sizes, seconds, cuts = measured
        return HandlerStats(
            name=self.label,
            batches=self.settled,
            items=self.items,
            retried=self.retried,
            inside_for=inside_for,
            sizes=sizes,
            seconds=seconds,
            cuts=cuts,
            limit=None if self.limit is None else self.limit.stats(),
        )


def _label(handler: object, item_type: type | None) -> str:
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"{name} of {item_type.__qualname__}" if item_type else name


def _hook(handler: object, name: str) -> Hook | None:
    hook = getattr(handler, name, None)
    return cast("Hook", hook) if callable(hook) else None


class HandlerRegistry:
    """Registrations by type; an item goes to its type's, or its nearest base's."""

    __slots__ = (
        "_by_type",
        "_detector",
        "_known",
        "_let_go",
        "_locked",
        "_queue",
        "attached",
        "consumer",
        "has_retired",
        "have_hooks",
        "have_limits",
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
        # Those of the queue.
        self.settings = settings
        # How many items a take removes, and whether a batch may have to be smaller.
        self.most_taken = settings.fixed_batch
        self.have_limits = False
        # Only where limits differ, or are found by trying.
        self.take_limit: TakeLimit | None = None
        self.consumer = None
        if consumer is not None:
            self.consumer = Registration(consumer, settings=settings)
            follow(self, self.consumer, None)
        self._by_type: dict[type, Registration] = {}
        # One registration of each handler, by identity; it keeps the handler alive.
        self._locked: dict[int, Registration] = {}
        # Replaced or removed, maybe while they had batches: their locks are in use.
        self._let_go = LetGo()
        # Whose batches are taken and not settled.
        self.in_flight: InFlight = tuple
        self._known: TypeMap[Registration | None] = TypeMap(self._by_type)
        self.resolved = self._known.near
        # Replaced or removed: they are still owed their `on_close`.
        self.retired: tuple[Registration, ...] = ()
        # Whether `take_retired` has anything to look at.
        self.has_retired = False
        # Whether there may be a handler with `on_idle` or `on_flush`, or `on_close`.
        self.have_hooks = self.consumer is not None and self.consumer.has_hooks
        self.have_on_close = bool(self.consumer and self.consumer.on_close)
        # The queue, while it runs, and those of its handlers that know it.
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
    def types(self) -> Pinned:
        """The types with a handler of their own, now and later."""
        return self._by_type

    def of_exactly(self, item_type: type) -> Registration | None:
        return self._by_type.get(item_type)

    def add(self, registration: Registration) -> Registration | None:
        """Register; returns the registration that it replaces."""
        assert registration.item_type is not None
        # One handler has one lock, for all its types, also when it comes back.
        known = self._locked.setdefault(id(registration.handler), registration)
        registration.adopt(known)
        self.have_hooks |= registration.has_hooks
        self.have_on_close |= registration.on_close is not None
        replaced = self._by_type.get(registration.item_type)
        follow(self, registration, replaced)
        self._by_type[registration.item_type] = registration
        self._changed(replaced)
        if self._queue is not None:
            self._attach(registration)
        return replaced

    def attach(self, queue: object, detector: DeadlockDetector) -> None:
        """Tell those who want to know it, now and later, that `queue` runs."""
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
        removed = self._by_type.pop(item_type, None)
        follow(self, None, removed)
        self._changed(removed)
        return removed

    def of(self, item_type: type) -> Registration | None:
        """Return the registration for items of exactly this type."""
        if self.consumer is not None:
            return self.consumer
        try:
            return self.resolved[item_type]
        except KeyError:
            if self._known.recall(item_type):
                return self.resolved[item_type]
            found = self.nearest(item_type)
            self._known.add(item_type, found)
            return found

    def refusing(self, error: MemoryError) -> Registration:
        """Return one for items that are taken, and there is no memory to sort them."""

        def refuse(_: list[Any]) -> None:
            raise error

        return Registration(refuse, settings=self.settings)

    def of_identical(self, item_type: type) -> Registration | None:
        """Do the same for a type that may not be hashed or compared."""
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

    def _changed(self, gone: Registration | None) -> None:
        self._known.clear()
        self.version += 1
        if gone is not None:
            self.has_retired = True
            if gone.on_close is not None:
                self.retired = (*self.retired, gone)
            else:
                self._let_go.add(gone, self.in_flight)
        self._tidy_locks()

    def _tidy_locks(self) -> None:
        in_use = len(self._by_type) + len(self.retired) + len(self._let_go.known)
        # Amortised: half of them can be forgotten.
        if len(self._locked) > 2 * in_use + SLACK:
            self._forget_locks()

    def _forget_locks(self) -> None:
        """Forget handlers that are neither registered nor at work.

        A retired one may come back before its `on_close`, and one with a batch before
        that is settled: then it must find its lock.
        """
        in_use = (*self._by_type.values(), *self.retired, *(self._let_go.known))
        locks = {id(each.lock) for each in in_use}
        self._locked = {
            key: each for key, each in self._locked.items() if id(each.lock) in locks
        }

    def take_retired(self) -> list[Registration]:
        """Take those that got their last batch, and that no other type uses."""
        in_flight = {*self.in_flight()}
        if self._let_go.known:
            self._let_go.forget_at_rest(in_flight)
            self._tidy_locks()
        self.has_retired = bool(self._let_go.known or self.retired)
        if not self.retired:
            return []
        # Whoever took one that is at work would wait for it, and nothing else.
        at_work = [each for each in self.retired if is_at_work(each, in_flight)]
        done = [each for each in self.retired if each not in at_work]
        self.retired = tuple(at_work)
        self.has_retired = bool(self._let_go.known or self.retired)
        self._tidy_locks()
        in_use = {id(each.handler) for each in (*self.retired, *self)}
        distinct = {id(each.handler): each for each in done}
        return [each for key, each in distinct.items() if key not in in_use]

    def put_back(self, retired: list[Registration]) -> None:
        """Those that were taken, and whose `on_close` was not called after all."""
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
