"""A partitioned, self-draining, batching queue for asyncio.

General layout:

* `_policies`: what a caller declares. Frozen values and protocols, no event loop.
* `_engine`: what runs, on one event loop and without threads.
* `_bridge`: from other threads onto the loop.

Imports point upwards in this list only. Every public name is exported here, once.
"""

from batchqueue_async._bridge.in_thread import in_thread
from batchqueue_async._bridge.loop_thread import LoopThread
from batchqueue_async._bridge.process_queue import close_process_queues, process_queue
from batchqueue_async._bridge.sync_queue import SyncBatchQueue
from batchqueue_async._engine.handler_stats import (
    Cuts,
    HandlerStats,
    Histogram,
)
from batchqueue_async._engine.manager import BatchQueueManager
from batchqueue_async._engine.queue import BatchQueue
from batchqueue_async._engine.signals import drain_on_signals
from batchqueue_async._engine.stats import (
    BatchQueueStats,
    DrainTaskStats,
    PartitionStats,
    RebalancingRound,
)
from batchqueue_async._merging import Merging
from batchqueue_async._policies.answers import PartialFailure, RetryAfter
from batchqueue_async._policies.backoff import IdleBackoff
from batchqueue_async._policies.balancing import (
    CostBalancer,
    DrainBalancer,
    Rebalancing,
    ThroughputBalancer,
)
from batchqueue_async._policies.buffering import WhenFull
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.drain_tasks import DrainTaskPolicy, SharedDrainTasks
from batchqueue_async._policies.errors import (
    BatchQueueError,
    ConfigConflict,
    DeliveryError,
    DuplicateQueue,
    Failure,
    InvalidSelection,
    ItemTooLarge,
    OmittedItem,
    WouldDeadlock,
)
from batchqueue_async._policies.handlers import (
    BatchFunction,
    BatchHandler,
    ErrorHandler,
    HandlerLike,
    HandlesClose,
    HandlesFlush,
    HandlesIdle,
    HandlesOpen,
    HandlesTick,
    RetryHook,
    SyncBatchHandler,
)
from batchqueue_async._policies.offering import Offer
from batchqueue_async._policies.partitions import PartitionPolicy
from batchqueue_async._policies.retrying import Retry
from batchqueue_async._policies.selectors import (
    PartitionSelector,
    by_key,
    by_type,
    round_robin,
)
from batchqueue_async._version import __version__ as __version__

__all__ = [
    "BatchFunction",
    "BatchHandler",
    "BatchQueue",
    "BatchQueueConfig",
    "BatchQueueError",
    "BatchQueueManager",
    "BatchQueueStats",
    "ConfigConflict",
    "CostBalancer",
    "Cuts",
    "DeliveryError",
    "DrainBalancer",
    "DrainTaskPolicy",
    "DrainTaskStats",
    "DuplicateQueue",
    "ErrorHandler",
    "Failure",
    "HandlerLike",
    "HandlerStats",
    "HandlesClose",
    "HandlesFlush",
    "HandlesIdle",
    "HandlesOpen",
    "HandlesTick",
    "Histogram",
    "IdleBackoff",
    "InvalidSelection",
    "ItemTooLarge",
    "LoopThread",
    "Merging",
    "Offer",
    "OmittedItem",
    "PartialFailure",
    "PartitionPolicy",
    "PartitionSelector",
    "PartitionStats",
    "Rebalancing",
    "RebalancingRound",
    "Retry",
    "RetryAfter",
    "RetryHook",
    "SharedDrainTasks",
    "SyncBatchHandler",
    "SyncBatchQueue",
    "ThroughputBalancer",
    "WhenFull",
    "WouldDeadlock",
    "by_key",
    "by_type",
    "close_process_queues",
    "drain_on_signals",
    "in_thread",
    "process_queue",
    "round_robin",
]
