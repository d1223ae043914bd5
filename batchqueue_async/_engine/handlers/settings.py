"""What a handler goes by where its queue says nothing else, and it for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.handlers import ErrorHandler
from batchqueue_async._policies.retrying import Retry


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HandlerSettings:
    """How a handler's batches are delivered."""

    retry: Retry = Retry()  # noqa: RUF009 - frozen
    timeout: float | None = None
    on_error: ErrorHandler[Any] | None = None
    is_measured: bool = False

    @classmethod
    def of(cls, config: BatchQueueConfig[Any]) -> Self:
        """Return what a queue's config says."""
        return cls(
            config.retry,
            config.handler_timeout,
            config.on_error,
            config.measure_handlers,
        )


DEFAULT = HandlerSettings()
