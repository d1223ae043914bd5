"""The queues of the soak: one of each kind, and several that share drain tasks."""

import asyncio
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    CostBalancer,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Rebalancing,
    Retry,
    SharedDrainTasks,
    ThroughputBalancer,
    WhenFull,
    by_key,
)
from tests.stress.faulty_handler import TIMEOUT, FaultyHandler
from tests.stress.tally import Item, Tally

MOST_KINDS = 24
KINDS = [type(f"Kind{number}", (Item,), {}) for number in range(MOST_KINDS)]
"""A type for each kind; `by_type` gives each a partition."""

SHARED = SharedDrainTasks("soak", DrainTaskPolicy.fixed(2))

QUEUES: dict[str, dict[str, Any]] = {
    "balanced": {
        "drain_tasks": DrainTaskPolicy.fixed(4),
        "partitions": PartitionPolicy.adaptive(multiplier=4),
        "rebalancing": Rebalancing(CostBalancer(), 0.2),
        "retry": Retry(attempts=3, wait_initial=0.01, wait_max=0.05),
        "handler_timeout": TIMEOUT,
    },
    "split": {
        "drain_tasks": DrainTaskPolicy.fixed(2),
        "partitions": PartitionPolicy.fixed(3),
        "rebalancing": Rebalancing(ThroughputBalancer(skip_below=1.0), 0.1),
        "retry": Retry(attempts=2, wait_initial=0.005, split=True),
        "max_batch": 7,
        "linger": 0.005,
    },
    "consumer": {
        "drain_tasks": DrainTaskPolicy.fixed(2),
        "partitions": PartitionPolicy.fixed(6),
        "selector": by_key(lambda item: item.kind),
        "rebalancing": Rebalancing(CostBalancer(), 0.2),
        "retry": Retry(attempts=2, wait_initial=0.005),
        "handler_timeout": TIMEOUT,
    },
    "oldest": {
        "partitions": PartitionPolicy.adaptive(multiplier=4),
        "drain_tasks": DrainTaskPolicy.fixed(2),
        "when_full": WhenFull.DROP_OLDEST,
    },
    "newest": {"when_full": WhenFull.DROP_NEWEST, "handler_timeout": TIMEOUT},
    "shared 1": {"drain_tasks": SHARED, "handler_timeout": TIMEOUT},
    "shared 2": {"drain_tasks": SHARED, "max_batch": 5},
    "shared 3": {"drain_tasks": SHARED, "retry": Retry(attempts=2, wait_initial=0.01)},
}


@dataclass(eq=False)
class Soaked:
    """A queue under test, and its tally."""

    queue: BatchQueue[Item]
    tally: Tally
    seed: int
    kinds: list[type[Item]] = field(default_factory=list)
    """Those that producers make, in the order of `KINDS`."""
    handlers: dict[type, FaultyHandler] = field(default_factory=dict)

    @property
    def has_handlers(self) -> bool:
        return self.queue.config.consumer is None

    def add_kind(self, kind: type[Item]) -> None:
        if self.has_handlers:
            self.add_handler(kind)
        self.kinds.append(kind)

    def add_handler(self, kind: type[Item]) -> None:
        hangs = self.queue.config.handler_timeout is not None
        name = f"handler {self.seed} of {kind.__name__}"
        handler = FaultyHandler(self.tally, name, self.seed, hangs=hangs)
        self.seed += 1
        self.queue.add_handler(kind, handler)
        self._replace(kind, handler)

    def remove_handler(self, kind: type[Item]) -> None:
        """What comes now goes to the handler of all kinds."""
        self.queue.remove_handler(kind)
        self._replace(kind, None)

    def finish(self, returned: list[Item]) -> Counter[str]:
        """Return the queue's counts and the tally's; everything has ended."""
        stats = self.queue.stats()
        counts = self.tally.finish(returned, stats.dropped)
        ends = ("handled", "failed", "dropped", "unhandled", "returned")
        for name in ("accepted", *ends, "rejected"):
            counts[name] = getattr(stats, name)
        ended = sum(getattr(stats, name) for name in ends)
        counts["wrong accounts"] += (
            stats.accepted != ended or stats.waiting + stats.in_flight > 0
        )
        return counts

    def _replace(self, kind: type, handler: FaultyHandler | None) -> None:
        former = self.handlers.pop(kind, None)
        if former is not None:
            # Not at once: its last batch may be on its way.
            loop = asyncio.get_running_loop()
            loop.call_later(30.0, self.tally.forget, former)
        if handler is not None:
            self.handlers[kind] = handler


async def open_queue(
    manager: BatchQueueManager, name: str, like: str, seed: int
) -> Soaked:
    """Create a queue of this name, with the settings of one of `QUEUES`."""
    settings = dict(QUEUES[like])
    tally = Tally(drops=settings.get("when_full") is WhenFull.DROP_OLDEST)
    if like == "consumer":
        settings["consumer"] = FaultyHandler(
            tally, "the consumer", seed, hangs=True, most_inside=6
        )
    config = BatchQueueConfig[Item](
        buffer_size=20,
        idle=IdleBackoff(0.001, 0.01),
        on_error=lambda batch, _: tally.failed(batch),
        **settings,
    )
    soaked = Soaked(await manager.create(name, config), tally, seed)
    if soaked.has_handlers:
        soaked.add_handler(Item)
    for kind in KINDS[:3]:
        soaked.add_kind(kind)
    return soaked


async def grow(soaked: Soaked, chance: random.Random, stop: threading.Event) -> None:
    """Add kinds, slowly."""
    for kind in KINDS[3:]:
        await asyncio.sleep(chance.random())
        if stop.is_set():
            return
        soaked.add_kind(kind)
