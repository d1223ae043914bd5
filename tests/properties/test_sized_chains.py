"""Two queues that feed each other and themselves, with room counted in sizes.

In virtual time, where who waits in vain makes the loop raise `Deadlock`. Handlers
produce, fail, answer in part and flush; producers are cancelled, and the queues are
closed with and without time to drain.
"""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    DrainTaskPolicy,
    PartialFailure,
    PartitionPolicy,
    Retry,
    WhenFull,
)
from batchqueue_async.testing import run_virtual
from tests.properties.profile import profile
from tests.support.oracle import check_settled
from tests.support.thorough import examples

FURTHEST = 2
"""So often items beget others: it all ends."""


@dataclass(eq=False)
class Parcel:
    number: int
    size: int
    generation: int


class Feeding:
    """Two queues, their producers, and what each step of them draws."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbered = 0
        self.measured: list[int] = []
        self.violations: list[str] = []
        self.queues = [self.new_queue(name) for name in ("one", "other")]

    def draw(self, *choices: Any) -> Any:  # noqa: ANN401 - one of them
        return self.random.choice(choices)

    def new_queue(self, name: str) -> BatchQueue[Parcel]:
        draw = self.draw
        config = BatchQueueConfig[Parcel](
            consumer=Feeder(self).consume,
            partitions=PartitionPolicy.fixed(draw(1, 3)),
            drain_tasks=DrainTaskPolicy.fixed(1),
            selector=lambda item, partitions: item.number % partitions,
            when_full=draw(*[WhenFull.WAIT] * 4, *WhenFull),
            size_of=self.size_of,
            buffer_bytes=draw(None, 12, 20, 40),
            max_batch_bytes=draw(None, 5, 12),
            buffer_size=draw(1, 3, 100),
            max_batch=draw(None, 1, 4),
            linger=draw(0.0, 0.0, 0.05, 5.0),
            retry=draw(Retry(), Retry(attempts=2, wait_initial=0.01, split=True)),
            on_error=lambda _, __: None,
            handler_timeout=draw(None, 0.05),
            shutdown_timeout=draw(30.0, 0.5),
        )
        if config.partitions.resolve(1, 0) > 1 and draw(0, 1):
            several = DrainTaskPolicy.fixed(3)
            config = BatchQueueConfig(**{**vars(config), "drain_tasks": several})
        return BatchQueue(name, config)

    def size_of(self, item: Parcel) -> int:
        self.measured.append(item.number)
        return item.size

    def new(self, generation: int = 0) -> Parcel:
        self.numbered += 1
        return Parcel(self.numbered, self.draw(0, 1, 1, 2, 3, 5, 8, 12), generation)

    async def feed(self, generation: int) -> None:
        """Put something into one of them, one way or another."""
        queue, new = self.draw(*self.queues), self.new
        kind = self.random.random()
        if kind < 0.5:
            await queue.produce(new(generation))
        elif kind < 0.6:
            queue.produce_nowait(new(generation))
        elif kind < 0.65:
            queue.offer(new(generation))
        elif kind < 0.85:
            await queue.produce_many([new(generation) for _ in range(self.draw(0, 5))])
        elif kind < 0.95:
            both = queue.produce(new(generation)), queue.produce(new(generation))
            await asyncio.gather(*both)
        else:
            await queue.flush(1.0)

    async def produce(self) -> None:
        for _ in range(self.draw(1, 5, 15)):
            await asyncio.sleep(self.draw(0, 0, 0.001, 0.02))
            with contextlib.suppress(BatchQueueError, TimeoutError):
                await self.feed(0)

    async def run(self) -> None:
        for queue in self.queues:
            await queue.start()
        producers = [
            asyncio.create_task(self.produce()) for _ in range(self.draw(1, 6))
        ]
        for _ in range(self.draw(0, 2, 5)):
            await asyncio.sleep(self.draw(0, 0.005, 0.02))
            self.draw(*producers).cancel()
        if self.draw(0, 1, 1):
            _, late = await asyncio.wait(producers, timeout=600)
            assert not late, "a lost wake-up, or a circle that nobody saw"
        await asyncio.gather(*(queue.close() for queue in self.queues))
        await asyncio.wait(producers)

    def check_ended(self) -> None:
        assert not self.violations, self.violations
        assert len(self.measured) == len(set(self.measured)), "measured twice"
        for queue in self.queues:
            check_settled(queue)
            stats, budget = queue.stats(), queue._parts.byte_budget
            assert (stats.waiting_bytes, stats.in_flight_bytes) == (0, 0)
            assert budget is not None
            assert not budget.reserved
            assert not budget.waits_to_check


@dataclass
class Feeder:
    """A handler that does to the queues what producers do, and fails at times."""

    feeding: Feeding
    seen: list[int] = field(default_factory=list)

    async def consume(self, batch: list[Parcel]) -> None:
        feeding = self.feeding
        for queue in feeding.queues:
            budget = queue._parts.byte_budget
            if budget is not None and budget.used > budget.capacity:
                feeding.violations.append(f"{budget.used} of {budget.capacity}")
        kind = feeding.random.random()
        if kind < 0.2:
            await asyncio.sleep(feeding.draw(0, 0.001, 0.1))
        elif kind < 0.3:
            raise ValueError
        elif kind < 0.4:
            raise PartialFailure([0])
        elif kind < 0.7:
            for item in batch:
                if item.generation < FURTHEST:
                    with contextlib.suppress(BatchQueueError, TimeoutError):
                        await feeding.feed(item.generation + 1)


@profile(examples(200), 1)
@given(seed=st.integers(0, 2**32))
def test_nobody_waits_in_vain_and_nothing_is_lost(seed: int) -> None:
    feeding = Feeding(seed)
    run_virtual(feeding.run())
    feeding.check_ended()
