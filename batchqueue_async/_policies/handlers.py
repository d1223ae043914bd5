"""What takes batches out of a queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class BatchHandler(Protocol[T]):
    """An object that takes the batches of one type, or of a whole queue.

    Only `consume` is required. It may also have, sync or async like `consume`:

    `on_open()`: before its first batch; if it raises that batch fails, and the next one
    calls it again.
    `on_idle()`: its drain task found nothing for it; never beside `consume`.
    `on_tick()`: every `tick_every` seconds, an attribute that it must have then.
    `on_flush()`: in a `flush`, after the last batch of what came before the flush.
    `on_close()`: the queue closes; once, after the last batch, within the deadline.
    """

    async def consume(self, batch: list[T], /) -> object:
        """Take a batch: a fresh list, which the handler may keep or change.

        Raising fails this batch alone: it goes to `on_error`, or to a retry. What it
        returns is not looked at, unless it is work that is not done: a future is
        awaited; a coroutine or generator, which nobody runs, fails the batch, too.
        """


@runtime_checkable
class SyncBatchHandler(Protocol[T]):
    """A `BatchHandler` that never awaits: it holds up the loop while it works."""

    def consume(self, batch: list[T], /) -> object:
        """Take a batch."""


@runtime_checkable
class HandlesOpen(Protocol):
    """A handler that gets something ready before its first batch."""

    def on_open(self) -> Awaitable[object] | object:
        """Connect, say. Raising fails the batch, and the next one asks again."""


@runtime_checkable
class HandlesIdle(Protocol):
    """A handler that wants to know when nothing came for it."""

    def on_idle(self) -> Awaitable[object] | object:
        """Use the pause, for instance to write out what was merged so far."""


@runtime_checkable
class HandlesTick(Protocol):
    """A handler that wants to be called from time to time, busy or not."""

    @property
    def tick_every(self) -> float:
        """Seconds from one call to the next; read when it is registered."""

    def on_tick(self) -> Awaitable[object] | object:
        """Do what is due; several missed ticks are made up for by one call."""


@runtime_checkable
class HandlesFlush(Protocol):
    """A handler that holds something back which a `flush` must push out."""

    def on_flush(self) -> Awaitable[object] | object:
        """Write out what was held back."""


@runtime_checkable
class HandlesClose(Protocol):
    """A handler that ends something when its queue closes."""

    def on_close(self) -> Awaitable[object] | object:
        """Finish; producing into other queues is still allowed."""


class ErrorHandler(Protocol[T]):
    """A callable that gets every batch that finally failed: a dead-letter sink."""

    def __call__(
        self, batch: list[T], error: BaseException, /
    ) -> Awaitable[object] | object:
        """Deal with the batch; sync or async. Raising here is logged."""


class RetryHook(Protocol[T]):
    """A callable that is told of every batch that will be tried again."""

    def __call__(
        self, batch: list[T], error: BaseException, attempt: int, wait: float, /
    ) -> Awaitable[object] | object:
        """Take note; sync or async. Raising here is logged, and changes nothing.

        Args:
            batch: The items that will be tried again: of a batch that failed in part,
                those that failed.
            error: What the handler raised.
            attempt: The attempt that failed; 1 is the first.
            wait: Seconds until the next one may start.
        """


BatchFunction: TypeAlias = Callable[[list[T]], Awaitable[object] | object]
"""A plain callable that takes a batch, sync or async."""

# What the two protocols say, for parameters: mypy takes a lambda's arguments for Any
# where a protocol is asked for, and then the whole queue's items, without a word.
ErrorFunction: TypeAlias = Callable[
    [list[T], BaseException], Awaitable[object] | object
]
RetryFunction: TypeAlias = Callable[
    [list[T], BaseException, int, float], Awaitable[object] | object
]

HandlerLike: TypeAlias = BatchHandler[T] | SyncBatchHandler[T] | BatchFunction[T]
"""Everything that a queue accepts as a handler."""
