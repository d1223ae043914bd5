"""What of a queue's config its drain tasks go by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from batchqueue_async._policies.backoff import IdleBackoff
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.selectors import by_type


@dataclass(slots=True, eq=False, repr=False)
class DrainSettings:
    """How a drain task batches and naps."""

    idle: IdleBackoff
    # One batch for all partitions: when one is due, all are.
    is_one_batch: bool
    # A handler's items may be in any partition: all must be taken before it is called.
    is_mixed: bool

    @classmethod
    def of(cls, config: BatchQueueConfig[Any]) -> Self:
        """Return what a queue's config says."""
        has_consumer = config.consumer is not None
        return cls(
            idle=config.idle,
            is_one_batch=has_consumer,
            is_mixed=has_consumer or config.selector is not by_type,
        )
