"""What a handler goes by: what was declared for it, else for its queue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from batchqueue_async._engine.handlers.meter import BatchListener
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.handler_options import (
    AUTO,
    HandlerOptions,
    MaxBatch,
)
from batchqueue_async._policies.handlers import ErrorHandler
from batchqueue_async._policies.retrying import Retry
from batchqueue_async._policies.sizing import Exact, exact
from batchqueue_async._policies.value import Value, frozen

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.adaptive_limit import AdaptiveLimit


@frozen
class HandlerSettings(Value):
    """How a handler's batches are made and delivered."""

    # One list per queue: whoever joins it later is told, too.
    listeners: list[BatchListener]
    max_batch: MaxBatch = None
    linger: float = 0.0
    retry: Retry = Retry()
    timeout: float | None = None
    on_error: ErrorHandler[Any] | None = None
    is_measured: bool = False
    max_batch_bytes: Exact | None = None
    # What a limit that is found by trying goes up to.
    most: int = 10_000

    @property
    def fixed_batch(self) -> int | None:
        return None if isinstance(self.max_batch, str) else self.max_batch

    def new_limit(self) -> AdaptiveLimit | None:
        """Return what finds the largest batch by trying, where that is wanted."""
        if self.max_batch != AUTO:
            return None
        from batchqueue_async._engine.handlers.adaptive_limit import (  # noqa: PLC0415
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

    def but(self, own: HandlerOptions[Any]) -> Self:
        """Return these, with what is declared for one handler in their place."""
        given = {
            "max_batch": own.max_batch,
            "linger": own.linger,
            "retry": own.retry,
            "timeout": own.handler_timeout,
            "on_error": own.on_error,
            "max_batch_bytes": _exact(own.max_batch_bytes),
        }
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        return replace(self, **changes) if changes else self


def _exact(size: float | None) -> Exact | None:
    return None if size is None else exact(size)


DEFAULT = HandlerSettings([])
