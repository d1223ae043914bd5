"""The parts of one queue, in one record, by which they find each other.

With it no part has to hand calls on to another. The parts import this module for its
type only.
"""

from __future__ import annotations

import asyncio
from typing import Any

from batchqueue_async._engine.draining.delivery_counts import DeliveryCounts
from batchqueue_async._engine.draining.drops_and_unhandled import (
    DropReport,
    UnhandledTypes,
)
from batchqueue_async._engine.handlers.deadlock_detector import DeadlockDetector
from batchqueue_async._engine.handlers.hooks import Hooks
from batchqueue_async._engine.handlers.registration import HandlerSettings
from batchqueue_async._engine.handlers.registry import HandlerRegistry
from batchqueue_async._engine.handlers.slow_calls import RunningCalls
from batchqueue_async._engine.lifecycle.batch_terms import BatchTerms
from batchqueue_async._engine.lifecycle.lifecycle import Lifecycle
from batchqueue_async._engine.lifecycle.partition_layout import Layout, byte_budget_of
from batchqueue_async._engine.lifecycle.state import State
from batchqueue_async._engine.lifecycle.tasks_and_shutdown import QueueTasks
from batchqueue_async._engine.partitions.kept_failures import FailureLogs
from batchqueue_async._engine.partitions.loads import Loads
from batchqueue_async._engine.partitions.loop_waker import LoopWaker
from batchqueue_async._engine.partitions.ownership import Ownership
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.routing import placement_for
from batchqueue_async._log import RepeatedFailures
from batchqueue_async._policies.choices import WhenFull
from batchqueue_async._policies.config import BatchQueueConfig


class Parts:
    """A plain record of a queue's parts, each made after those that it needs."""

    __slots__ = (
        "batch_terms",
        "byte_budget",
        "config",
        "delivery_counts",
        "detector",
        "drops",
        "failures",
        "handlers",
        "hooks",
        "ingress",
        "layout",
        "lifecycle",
        "loads",
        "loop",
        "name",
        "ownership",
        "partitions",
        "placement",
        "repeated_failures",
        "running_calls",
        "state",
        "tasks",
        "thread",
        "unhandled_types",
    )

    def __init__(self, name: str, config: BatchQueueConfig[Any]) -> None:
        self.name = name
        self.config = config
        self.state = State.NEW
        # The loop that the queue was started on.
        self.loop: asyncio.AbstractEventLoop | None = None
        # The thread that it ran on then.
        self.thread = 0
        # Set by the bridge, from the first `SyncBatchQueue` on.
        self.ingress: LoopWaker[Any] | None = None
        self.partitions: list[Partition[Any]] = []
        self.ownership = Ownership(self.partitions)
        # The room that all partitions share, if items are measured.
        self.byte_budget = byte_budget_of(config, self.partitions)
        self.loads = Loads(self.partitions, config.rebalancing)
        self.handlers = HandlerRegistry(config.consumer, HandlerSettings.of(config))
        self.placement = placement_for(
            config.selector,
            self.partitions,
            self.handlers,
            grows=config.partitions.grows,
        )
        self.failures = FailureLogs()
        self.repeated_failures = RepeatedFailures()
        # None unless full partitions drop their oldest items.
        self.drops: DropReport | None = None
        if config.when_full is WhenFull.DROP_OLDEST:
            self.drops = DropReport(name, self.partitions)
        self.batch_terms = BatchTerms(self)
        self.layout = Layout(self)
        calls = RunningCalls(name, config.slow_handler, self.repeated_failures)
        self.running_calls = calls
        self.detector = DeadlockDetector(name, self.ownership, calls, self.byte_budget)
        self.hooks = Hooks(self)
        self.delivery_counts = DeliveryCounts(self)
        self.unhandled_types = UnhandledTypes()
        self.tasks = QueueTasks(self)
        self.lifecycle = Lifecycle(self)
