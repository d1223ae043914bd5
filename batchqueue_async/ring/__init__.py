"""A ring buffer with a graph of consumers: the LMAX Disruptor for one asyncio loop.

One stream of events that are made once and filled again and again; many handlers that
each see all of them, in a given order, in batches of whatever is there. It stands
alone: the queue does not know it, nor it the queue.

General layout, each part knowing those above it only:

* `sequence`, `published`, `watching`: numbers that grow, and who is told.
* `wait_strategies`, `barrier`: how far a consumer may go, and how it waits.
* `room`, `claims`, `sequencer` and its two kinds: who may fill which slot.
* `claim`, `slots`, `ring_buffer`: the slots, and the verbs of producers.
* `handlers`, `delivery`, `event_processor`, `worker`, `worker_pool`: who consumes.
* `graph`, `consumers`, `crew`, `closing`, `disruptor`: all of it as one.
* `guard`, `door`, `sync_ring`: producers on other threads.
"""

from .barrier import SequenceBarrier
from .disruptor import Disruptor
from .errors import (
    InsufficientCapacity,
    InvalidArgument,
    RewindBatch,
    RingError,
    RingHalted,
)
from .exception_handlers import ExceptionHandler, halt, log_and_continue
from .handler_group import HandlerGroup
from .handlers import EventBatchHandler, EventHandler
from .multi_producer import MultiProducerSequencer
from .producer_type import ProducerType
from .rewind import Rewind
from .ring_buffer import RingBuffer
from .sequence import Sequence
from .single_producer import SingleProducerSequencer
from .stats import ConsumerStats, RingStats
from .sync_ring import SyncRing
from .wait_strategies import (
    BlockingWait,
    BusySpinWait,
    SleepingWait,
    TimeoutBlockingWait,
    WaitStrategy,
    YieldingWait,
)
from .worker_pool import WorkerPool

__all__ = [
    "BlockingWait",
    "BusySpinWait",
    "ConsumerStats",
    "Disruptor",
    "EventBatchHandler",
    "EventHandler",
    "ExceptionHandler",
    "HandlerGroup",
    "InsufficientCapacity",
    "InvalidArgument",
    "MultiProducerSequencer",
    "ProducerType",
    "Rewind",
    "RewindBatch",
    "RingBuffer",
    "RingError",
    "RingHalted",
    "RingStats",
    "Sequence",
    "SequenceBarrier",
    "SingleProducerSequencer",
    "SleepingWait",
    "SyncRing",
    "TimeoutBlockingWait",
    "WaitStrategy",
    "WorkerPool",
    "YieldingWait",
    "halt",
    "log_and_continue",
]
