"""What may be declared for one handler in place of its queue's setting."""

from __future__ import annotations

from typing import Final, Generic, Literal, TypeAlias

from batchqueue_async._functions import require_function
from batchqueue_async._validation import (
    refuse,
    require_at_least,
    require_instance,
    require_int,
    require_positive,
)

from .handlers import ErrorHandler
from .items import T
from .retrying import Retry
from .value import Value, frozen

AUTO: Final = "auto"
"""A largest batch that is found by trying."""
MaxBatch: TypeAlias = int | Literal["auto"] | None


@frozen(kw_only=True)
class HandlerOptions(Value, Generic[T]):
    """Settings of one handler; None stands for the queue's."""

    max_batch: MaxBatch = None
    linger: float | None = None
    retry: Retry | None = None
    on_error: ErrorHandler[T] | None = None
    handler_timeout: float | None = None
    max_batch_bytes: float | None = None

    def __post_init__(self) -> None:
        most: object = self.max_batch
        if isinstance(most, str) and most != AUTO:
            refuse("max_batch", 'an int, "auto" or None', most, TypeError)
        if most is not None and most != AUTO:
            require_int("max_batch", most, at_least=1)
        if self.linger is not None:
            require_at_least("linger", self.linger, 0)
        if self.retry is not None:
            require_instance("retry", self.retry, Retry, "a Retry or None")
        if self.on_error is not None:
            told = "two arguments, the batch and the error"
            require_function("on_error", self.on_error, 2, told)
        if self.handler_timeout is not None:
            require_positive("handler_timeout", self.handler_timeout)
        if self.max_batch_bytes is not None:
            require_positive("max_batch_bytes", self.max_batch_bytes)
