"""A ring buffer with a graph of consumers: the LMAX Disruptor for one asyncio loop.

One stream of events that are made once and filled again and again; many handlers that
each see all of them, in a given order, in batches of whatever is there. It is
independent of the queue: neither imports the other.

General layout, each part knowing those above it only:

* `errors`: what goes wrong, what is refused, and what is done when a handler raises.
* `sequence`, `sequence_barrier`: how far a consumer may go, and how it waits.
* `claim_queue`, `sequencer`, `single_producer_sequencer`: who may fill which slot, and
  what is published; `handler_call`: waits that would never end.
* `ring_buffer`: the slots, and the verbs of producers; `sync_ring`: on other threads.
* `event_handler`, `event_processor`: who consumes.
* `lifecycle`, `worker_pool`, `consumer_repository`, `disruptor`: all as one.
"""

from .disruptor import ConsumerStats, Disruptor, HandlerGroup, RingStats
from .errors import (
    ExceptionHandler,
    InsufficientCapacity,
    InvalidArgument,
    Rewind,
    RewindBatch,
    RingError,
    RingHalted,
    halt,
    log_and_continue,
)
from .event_handler import EventBatchHandler, EventHandler
from .ring_buffer import ProducerType, RingBuffer
from .sequence import Sequence
from .sequence_barrier import (
    BlockingWait,
    BusySpinWait,
    SequenceBarrier,
    SleepingWait,
    TimeoutBlockingWait,
    WaitStrategy,
    YieldingWait,
)
from .sequencer import MultiProducerSequencer
from .single_producer_sequencer import SingleProducerSequencer
from .sync_ring import SyncRing
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
