"""A partitioned, self-draining, batching queue for asyncio.

General layout:

* `_policies`: what a caller declares. Frozen values and protocols, no event loop.
* `_engine`: what runs, on one event loop and without threads.
* `_bridge`: from other threads onto the loop.

Imports point upwards in this list only. Every public name is exported here, once.
"""

import typing as _typing
from importlib import import_module as _import_module

from batchqueue_async._engine.handler_stats import (
    BatchLimit,
    Cuts,
    DrainTaskLimit,
    HandlerStats,
    Histogram,
)
from batchqueue_async._engine.lifecycle.state import opened_by as _opened_by
from batchqueue_async._engine.queue import BatchQueue
from batchqueue_async._engine.runtime.loop_end import told_of_end_by as _told_of_end_by
from batchqueue_async._engine.stats import (
    BatchQueueStats,
    DrainTaskStats,
    PartitionStats,
    RebalancingRound,
)
from batchqueue_async._policies.balancing import (
    CostBalancer,
    DrainBalancer,
    Rebalancing,
    ThroughputBalancer,
)
from batchqueue_async._policies.choices import Offer, WhenFull
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
    ProcessDied,
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
from batchqueue_async._policies.idle_backoff import IdleBackoff
from batchqueue_async._policies.partitions import PartitionPolicy
from batchqueue_async._policies.retry import PartialFailure, Retry, RetryAfter
from batchqueue_async._policies.selectors import (
    PartitionSelector,
    by_key,
    by_type,
    fair_by,
    round_robin,
)
from batchqueue_async._process_end import (
    call_at_multiprocessing_end as _call_at_multiprocessing_end,
)
from batchqueue_async._version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from batchqueue_async._bridge.in_process import in_process
    from batchqueue_async._bridge.in_thread import in_thread
    from batchqueue_async._bridge.loop_thread import LoopThread
    from batchqueue_async._bridge.process_queue import (
        close_process_queues,
        process_queue,
    )
    from batchqueue_async._bridge.sync_queue import SyncBatchQueue
    from batchqueue_async._engine.drain_on_signals import drain_on_signals
    from batchqueue_async._engine.manager import BatchQueueManager
    from batchqueue_async._merging import Merging

__all__ = [
    "BatchFunction",
    "BatchHandler",
    "BatchLimit",
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
    "DrainTaskLimit",
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
    "ProcessDied",
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
    "fair_by",
    "in_process",
    "in_thread",
    "process_queue",
    "round_robin",
]

# Not every program starts a thread or a second queue, so these are imported when they
# are asked for: that saves a fifth of the import's time.
_LATER = {
    "BatchQueueManager": "_engine.manager",
    "LoopThread": "_bridge.loop_thread",
    "Merging": "_merging",
    "SyncBatchQueue": "_bridge.sync_queue",
    "close_process_queues": "_bridge.process_queue",
    "drain_on_signals": "_engine.drain_on_signals",
    "in_process": "_bridge.in_process",
    "in_thread": "_bridge.in_thread",
    "process_queue": "_bridge.process_queue",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found: object = getattr(_import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


# For queues that threads may use from the start on (`threads=True`).
_opened_by(
    lambda parts: _import_module(f"{__name__}._bridge.thread_ingress").open_up(parts)
)
# For loops that are not closed in a process of `multiprocessing`.
_told_of_end_by(_call_at_multiprocessing_end)
