"""Everything at once, in a few milliseconds: for loops that shuffle, by a seed."""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Rebalancing,
    Retry,
)
from tests.support.oracle import check_settled

PATIENCE = 10.0
"""Virtual seconds: whoever takes longer waits for ever."""


@dataclass(frozen=True)
class Item:
    """Unique, and numbered by its producer."""

    producer: int
    number: int


class Red(Item): ...


class Green(Item): ...


class Blue(Item): ...


class Shuffler:
    """Gives every partition a random owner in every round."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> Sequence[int]:
        return [self._chance.randrange(drain_tasks) for _ in owners]


class Oracle:
    """What handlers saw, against what producers were told."""

    def __init__(self) -> None:
        self.accepted: set[Item] = set()
        self.perhaps: set[Item] = set()
        self.done: set[Item] = set()
        self.failed: set[Item] = set()
        self.violations: list[str] = []
        self.kinds: list[type[Item]] = []
        """Those with a handler."""
        self._last: defaultdict[tuple[type, int], int] = defaultdict(lambda: -1)
        self._inside: set[type] = set()

    def handler(self, kind: type[Item], chance: random.Random) -> Any:  # noqa: ANN401
        self.kinds.append(kind)

        async def consume(batch: list[Item]) -> None:
            self._demand(kind not in self._inside, "B3: entered twice")
            self._inside.add(kind)
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(chance.choice([0, 0, 0.001]))
                if chance.random() < 0.2:
                    raise ValueError
                self._receive(kind, batch)
            finally:
                self._inside.discard(kind)

        return consume

    def _receive(self, kind: type[Item], batch: list[Item]) -> None:
        for item in batch:
            last = self._last[kind, item.producer]
            self._demand(item not in self.done, f"doubled: {item}")
            self._demand(item.number > last, f"reordered: {item} after {last}")
            self._last[kind, item.producer] = item.number
            self.done.add(item)

    def _demand(self, holds: object, message: str) -> None:
        # An exception here would be a failed batch, no more.
        if not holds:
            self.violations.append(message)

    def check(self) -> None:
        assert not self.violations, self.violations
        ended = self.done | self.failed
        assert self.accepted <= ended, f"lost: {self.accepted - ended}"
        assert ended <= self.accepted | self.perhaps, "handled, though refused"


async def _produce(
    queue: BatchQueue[Item], oracle: Oracle, producer: int, chance: random.Random
) -> None:
    numbers = count()
    for _ in range(10):
        kind = chance.choice(oracle.kinds)
        if chance.random() < 0.5:
            item = kind(producer, next(numbers))
            oracle.perhaps.add(item)
            if await queue.produce(item):
                oracle.accepted.add(item)
            oracle.perhaps -= {item} - oracle.accepted
        else:
            items = [kind(producer, next(numbers)) for _ in range(chance.randint(1, 4))]
            oracle.perhaps.update(items)
            placed = await queue.produce_many(items)
            oracle.accepted.update(items[:placed])
            oracle.perhaps.difference_update(items[placed:])
        if chance.random() < 0.3:
            await asyncio.sleep(chance.choice([0, 0.001, 0.01]))


async def mixed_scenario(seed: int) -> None:
    """Producers in line, growth, rounds, failures, a flush, cancellations, the end."""
    chance, oracle = random.Random(seed), Oracle()
    config = BatchQueueConfig[Item](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.adaptive(multiplier=2),
        buffer_size=chance.randint(1, 6),
        max_batch=chance.choice([None, 1, 2]),
        idle=IdleBackoff(0.001, 0.002),
        rebalancing=Rebalancing(Shuffler(seed), 0.003),
        retry=chance.choice([Retry(), Retry(attempts=3, wait_initial=0.004)]),
        on_error=lambda batch, _: oracle.failed.update(batch),
    )
    async with asyncio.timeout(PATIENCE):
        queue = BatchQueue("q", config)
        await queue.start()
        queue.add_handler(Red, oracle.handler(Red, chance))
        producers = [
            asyncio.create_task(_produce(queue, oracle, number, chance))
            for number in range(5)
        ]
        for kind, victim in ((Green, 0), (Blue, 1)):
            queue.add_handler(kind, oracle.handler(kind, chance), 3.0)
            await asyncio.sleep(chance.choice([0, 0.002]))
            producers[victim].cancel()
        await _flush(queue, oracle)
        if chance.random() < 0.5:
            await asyncio.wait(producers)
        assert await queue.shutdown() == []
        await asyncio.wait(producers)
    for each in producers[2:]:
        each.result()
    check_settled(queue)
    oracle.check()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def _flush(queue: BatchQueue[Item], oracle: Oracle) -> None:
    before = set(oracle.accepted)
    with contextlib.suppress(DeliveryError):
        await queue.flush()
    late = before - oracle.done - oracle.failed
    assert not late, f"flushed, but {late} are not settled"
