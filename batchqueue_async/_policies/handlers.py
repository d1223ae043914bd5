"""What takes batches out of a queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from .validation import refuse

T = TypeVar("T")


@runtime_checkable
class BatchHandler(Protocol[T]):
    """An object that takes the batches of one type, or of a whole queue.

    Only `consume` is required. It may also have, sync or async like `consume`:

    `on_idle()`: its drain task found nothing for it; never beside `consume`.
    `on_flush()`: a `flush` covers what came before; after the last of those batches.
    `on_close()`: the queue closes; once, after the last batch, within the deadline.
    """

    async def consume(self, batch: list[T], /) -> None:
        """Take a batch: a fresh list, which the handler may keep or change.

        Raising fails this batch alone: it goes to `on_error`, or to a retry.
        """


@runtime_checkable
class SyncBatchHandler(Protocol[T]):
    """A `BatchHandler` that never awaits: it holds up the loop while it works."""

    def consume(self, batch: list[T], /) -> None:
        """Take a batch."""


@runtime_checkable
class HandlesIdle(Protocol):
    """A handler that wants to know when nothing came for it."""

    def on_idle(self) -> Awaitable[None] | None:
        """Use the pause, for instance to write out what was merged so far."""


@runtime_checkable
class HandlesFlush(Protocol):
    """A handler that holds something back which a `flush` must push out."""

    def on_flush(self) -> Awaitable[None] | None:
        """Write out what was held back."""


@runtime_checkable
class HandlesClose(Protocol):
    """A handler that ends something when its queue closes."""

    def on_close(self) -> Awaitable[None] | None:
        """Finish; producing into other queues is still allowed."""


class ErrorHandler(Protocol[T]):
    """A callable that gets every batch that finally failed: a dead-letter sink."""

    def __call__(
        self, batch: list[T], error: BaseException, /
    ) -> Awaitable[None] | None:
        """Deal with the batch; sync or async. Raising here is logged."""


class RetryHook(Protocol[T]):
    """A callable that is told of every batch that will be tried again."""

    def __call__(
        self, batch: list[T], error: BaseException, attempt: int, wait: float, /
    ) -> Awaitable[None] | None:
        """Take note; sync or async. Raising here is logged, and changes nothing.

        Args:
            batch: The items that will be tried again: of a batch that failed in part,
                those that failed.
            error: What the handler raised.
            attempt: The attempt that failed; 1 is the first.
            wait: Seconds until the next one may start.
        """


BatchFunction: TypeAlias = Callable[[list[T]], Awaitable[None] | None]
"""A plain callable that takes a batch, sync or async."""

HandlerLike: TypeAlias = BatchHandler[T] | SyncBatchHandler[T] | BatchFunction[T]
"""Everything that a queue accepts as a handler."""


def require_handler(field: str, value: object) -> None:
    """Refuse what cannot take a batch, and a handler's class given for its object."""
    has_consume = callable(getattr(value, "consume", None))
    if isinstance(value, type) and has_consume:
        refuse(field, "a handler, not its class", value, TypeError)
    if not has_consume and not callable(value):
        refuse(field, "callable or have a consume method", value, TypeError)
