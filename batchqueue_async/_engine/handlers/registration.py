"""A registered handler: what to call, by which lock, and with which settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Self, cast

from batchqueue_async._engine.handler_stats import BatchListener, HandlerStats, Meter
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    EXCLUSIVE,
    SHARED,
    HandlerLock,
)
from batchqueue_async._engine.handlers.on_open import Opening
from batchqueue_async._engine.handlers.ticks import Ticks
from batchqueue_async._functions import attribute_of, name_of, taker_of
from batchqueue_async._policies.config import AUTO, BatchQueueConfig, MaxBatch
from batchqueue_async._policies.handler_checks import require_handler
from batchqueue_async._policies.retry import Retry
from batchqueue_async._policies.sizing import Exact, exact
from batchqueue_async._policies.value import Value

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.adaptive_max_batch import AdaptiveLimit
    from batchqueue_async._policies.handlers import ErrorHandler


class Attached:
    """A handler that is told from when until when a queue may call it.

    If the queue's loop ends first it is not told: it must release its resources by
    itself when it is collected.
    """

    concurrency = 1
    """How many of its calls may run at once, in all queues together."""

    def attach(self, queue: object) -> None:
        """Get ready: this queue may call from now on. Must not raise."""

    def detach(self, queue: object) -> None:
        """This queue calls no more."""

    def new_lock(self) -> HandlerLock:
        """Return the lock by which a queue's calls enter it."""
        return HandlerLock()


def attached(handler: object) -> Attached | None:
    """Return the handler of the library's own that this is, or wraps.

    A wrapper is known by its `__wrapped__`, which `functools.wraps` sets.
    """
    seen = 0
    while not isinstance(handler, Attached):
        handler = getattr(handler, "__wrapped__", None)
        seen += 1
        if handler is None or seen > _MOST_WRAPPERS:
            return None
    return handler


def concurrency_of(handler: object) -> tuple[str, int]:
    """Return its name, and how many of its calls may run at once; 1 if unknown."""
    known = attached(handler) or handler
    name = name_of(known)
    return name, known.concurrency if isinstance(known, Attached) else 1


# Bounded, since an object that has every attribute would wrap others without end.
_MOST_WRAPPERS = 16


class HandlerSettings(Value):
    """How a handler's batches are made and delivered."""

    # One list per queue: a listener that is added later is told, too.
    listeners: list[BatchListener]
    max_batch: MaxBatch = None
    linger: float = 0.0
    retry: Retry = Retry()
    handler_timeout: float | None = None
    on_error: ErrorHandler[Any] | None = None
    is_measured: bool = False
    max_batch_bytes: Exact | None = None
    # The most that an adaptive limit goes up to.
    most: int = 10_000

    def __post_init__(self) -> None:
        if self.retry.attempts > 1:
            # What waits are made of takes 2 ms to import, which few programs need. Not
            # at the first failure: that may be that no more files can be opened.
            import random  # noqa: F401, PLC0415

    @property
    def fixed_batch(self) -> int | None:
        return None if isinstance(self.max_batch, str) else self.max_batch

    def new_limit(self) -> AdaptiveLimit | None:
        if self.max_batch != AUTO:
            return None
        from batchqueue_async._engine.handlers.adaptive_max_batch import (  # noqa: PLC0415
            AdaptiveLimit,
        )

        return AdaptiveLimit(self.most)

    @classmethod
    def of(cls, config: BatchQueueConfig[Any]) -> Self:
        return cls(
            [],
            config.max_batch,
            config.linger,
            config.retry,
            config.handler_timeout,
            config.on_error,
            config.measure_handlers,
            _exact(config.max_batch_bytes),
            config.buffer_size,
        )

    def but(self, *, max_batch_bytes: float | None, **own: object) -> Self:
        """Return these settings, replaced by those that one handler declares."""
        own["max_batch_bytes"] = _exact(max_batch_bytes)
        changes = {name: value for name, value in own.items() if value is not None}
        return self.__replace__(**changes) if changes else self


def _exact(size: float | None) -> Exact | None:
    return None if size is None else exact(size)


DEFAULT = HandlerSettings([])


Consume = Callable[[list[Any]], Awaitable[object] | object]
Hook = Callable[[], Awaitable[object] | object]


class Registration:
    """A handler under its item type, or the queue's single consumer (no type)."""

    __slots__ = (
        "consume",
        "handler",
        "is_closed",
        "item_type",
        "items",
        "label",
        "limit",
        "lock",
        "max_batch",
        "meter",
        "mode",
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
        "was_quick",
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
        # Its number: with a custom selector it says which drain task calls its hooks.
        self.order = order
        # Which other calls of `consume` may be inside of the handler beside one. If it
        # takes one call at a time, calls wait at its lock, before any timeout runs.
        own = attached(handler)
        self.mode = EXCLUSIVE if own is not None and own.concurrency == 1 else mode
        self.lock = HandlerLock() if own is None else own.new_lock()
        if item_type is not None:
            # A consumer was checked when it was declared.
            require_handler("handler", handler)
        self.consume = cast("Consume", taker_of(handler))
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
        # Batches settled, the items of these; items tried again.
        self.settled = self.items = self.retried = 0
        self.settings = settings
        # What its batches have at most: as declared, or as found by trying so far.
        self.limit = settings.new_limit()
        self.max_batch = self.limit.size if self.limit else settings.fixed_batch
        self.retry, self.timeout = settings.retry, settings.handler_timeout
        self.on_error = settings.on_error
        self.meter: Meter | None = None
        if settings.is_measured:
            self.meter = Meter(self.label, settings.listeners)
        # Whether `on_close` was called, after which nothing is; and whether the last
        # call was quick, so that the next one need not be run in steps.
        self.is_closed = self.was_quick = False

    @property
    def has_hooks(self) -> bool:
        """Whether it wants to be called by its drain task without a batch."""
        return self.on_idle is not None or self.ticks is not None

    @property
    def is_open(self) -> bool:
        """Whether its other hooks may be called."""
        return not self.is_closed and (self.opening is None or self.opening.is_done)

    def adopt(self, known: Registration) -> None:
        """Share lock, ticks and `on_open` with its handler's other registrations."""
        self.lock = known.lock
        if known is self:
            return
        self.ticks = known.ticks
        if self.ticks is not None:
            self.ticks.types += 1
        if self.opening is not None:
            self.opening = known.opening
            self._open_first()

    def _open_first(self) -> None:
        if self.opening is not None:
            consume = taker_of(self.handler)
            self.consume = self.opening.before(cast("Consume", consume))

    def stats(self, inside_for: float) -> HandlerStats:
        measured = (None, None, None) if self.meter is None else self.meter.read()
        sizes, seconds, cuts = measured
        return HandlerStats.unchecked(
            {
                "name": self.label,
                "batches": self.settled,
                "items": self.items,
                "retried": self.retried,
                "inside_for": inside_for,
                "sizes": sizes,
                "seconds": seconds,
                "cuts": cuts,
                "limit": None if self.limit is None else self.limit.stats(),
            }
        )


def _label(handler: object, item_type: type | None) -> str:
    name = name_of(handler)
    # Of a class with `__len__` in its metaclass, such as a registry, `not` may be true.
    return name if item_type is None else f"{name} of {item_type.__qualname__}"


def _hook(handler: object, name: str) -> Hook | None:
    hook = attribute_of(handler, name)
    return cast("Hook", hook) if callable(hook) else None
