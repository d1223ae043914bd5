"""Balancers that do as they are told, and queues whose types have known partitions.

Handlers are registered in the order of `TYPES`, so the items of `TYPES[p]` wait in
partition p.
"""

import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainBalancer,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Rebalancing,
)

TYPES: tuple[type, ...] = (int, str, bytes, float)

INTERVAL = 1.0
"""Between rounds: long beside every nap, so tests can act in the middle."""

IDLE = IdleBackoff(0.001, 0.5 * INTERVAL)
"""Few naps: in virtual time they are what tests spend their time on."""


class Asked(NamedTuple):
    """What a balancer was asked."""

    loads: Sequence[float]
    owners: Sequence[int]
    drain_tasks: int


TWO = PartitionPolicy.fixed(2)


class Planned:
    """Returns one plan after the other, then None for ever; raises exceptions.

    With `on_demand` a plan waits until the test waits for its round: what a test
    prepares takes longer than an interval on a busy machine.
    """

    def __init__(
        self, *plans: object, measure: str = "items", on_demand: bool = False
    ) -> None:
        self.measure = measure
        self.asked: list[Asked] = []
        self._plans = list(plans)
        self._was_asked = asyncio.Event()
        self._wanted = 0 if on_demand else math.inf

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> Any:  # noqa: ANN401  # wrong plans, too
        if len(self.asked) >= self._wanted:
            return None
        self.asked.append(Asked(loads, owners, drain_tasks))
        self._was_asked.set()
        plan = self._plans.pop(0) if self._plans else None
        if isinstance(plan, BaseException):
            raise plan
        return plan

    async def round(self, number: int) -> Asked:
        """Wait until it has been asked so often; returns what it was asked then."""
        self._wanted = max(self._wanted, number)
        while len(self.asked) < number:
            self._was_asked.clear()
            await self._was_asked.wait()
        return self.asked[number - 1]


class Shuffler:
    """Gives every partition a random owner in every round."""

    def __init__(self, seed: int = 1) -> None:
        self.rounds = 0
        self._random = random.Random(seed)

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> Sequence[int]:
        self.rounds += 1
        return [self._random.randrange(drain_tasks) for _ in owners]


def rebalanced(
    balancer: DrainBalancer,
    *,
    drain_tasks: int = 2,
    partitions: PartitionPolicy = TWO,
    interval: float = INTERVAL,
    **settings: Any,  # noqa: ANN401  # of BatchQueueConfig
) -> BatchQueue[Any]:
    """Return a queue, not started, whose partitions the balancer moves."""
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=partitions,
        rebalancing=Rebalancing(balancer, interval),
        **{"idle": IDLE, **settings},
    )
    return BatchQueue("q", config)


def register(queue: BatchQueue[Any], handlers: Mapping[type, Any]) -> None:
    """Add the handlers, each type in the partition of its number."""
    assert tuple(handlers) == TYPES[: len(handlers)]
    for item_type, handler in handlers.items():
        queue.add_handler(item_type, handler)


def owners(queue: BatchQueue[Any]) -> list[int | None]:
    """Return who owns each partition now; None for those in a handoff."""
    return [partition.owner for partition in queue.stats().partitions]
