"""One queue with little room, and a crowd of producers that take all ways in at once.

Beside them some are cancelled, others time out, flush, or cancel drain tasks; then the
queue is shut down, at times in the middle. All is drawn from one seed.
"""

import asyncio
import contextlib
import random
from typing import Any

import anyio

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Rebalancing,
    Retry,
    SyncBatchQueue,
    WhenFull,
    by_key,
    fair_by,
)
from batchqueue_async._engine.queue import parts_of
from tests.support.oracle import check_settled

PRODUCER = 100_000
"""Items are numbers: the producer's times this, and how many it had made before."""
LONE = 90_000
"""Numbers from here on are nobody's in particular: they have no order."""


class First(int):
    pass


class Second(int):
    pass


def config_of(chance: random.Random, room: int) -> BatchQueueConfig[Any]:
    """Draw settings that go together."""

    def now_and_then(share: float, *values: Any) -> dict[str, Any]:  # noqa: ANN401
        return chance.choice(values) if chance.random() < share else {}

    return BatchQueueConfig[Any](
        buffer_size=room,
        drain_tasks=DrainTaskPolicy.fixed(chance.choice([1, 1, 2, 3])),
        partitions=PartitionPolicy.fixed(chance.choice([1, 1, 3])),
        on_error=lambda _, __: None,
        **now_and_then(0.4, *({"max_batch": most} for most in (1, 2, 3, 8))),
        **now_and_then(0.2, {"linger": 0.001}, {"linger": 0.01}),
        **now_and_then(0.2, *({"idle": IdleBackoff(each)} for each in (1e-6, 0.01))),
        **now_and_then(0.2, {"rebalancing": Rebalancing(interval=0.005)}),
        **now_and_then(0.3, {"retry": Retry(attempts=50, wait_initial=0.001)}),
        **now_and_then(
            0.4,
            {"selector": fair_by(lambda item: item // PRODUCER % 3)},
            {"selector": by_key(lambda item: item // PRODUCER)},
            {"size_of": lambda item: 1 + item % 7, "buffer_bytes": 20},
            {"size_of": lambda item: 1 + item % 7, "max_batch_bytes": 10},
            {"when_full": WhenFull.DROP_OLDEST},
            {"when_full": WhenFull.DROP_NEWEST},
        ),
    )


class Crowd:
    """What the producers have put in, and what became of it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.config = config_of(chance, chance.choice([1, 2, 3, 4, 7, 10, 40]))
        self.queue = BatchQueue("q", self.config)
        self.accepted = 0
        self.handled: list[int] = []
        # Cancelled in the middle of a batch, a drain task fails it.
        self.keeps_order = self.config.when_full is WhenFull.WAIT

    async def play(self) -> None:
        """Run it to its end, and look at the accounts."""
        left: list[Any] = []
        async with self.queue:
            for each in (First, Second):
                self.queue.add_handler(each, self.consume)
            if self.chance.random() < 0.3:
                SyncBatchQueue(self.queue)
            producers = [*map(self.produce, range(self.chance.choice([1, 3, 8, 12])))]
            tasks = [asyncio.create_task(each) for each in (*producers, self.disturb())]
            if self.chance.random() < 0.25:
                await asyncio.sleep(self.chance.random() * 0.03)
                timeout = self.chance.choice([0.0, 0.001, 5.0])
                left = await asyncio.wait_for(self.queue.shutdown(timeout), 100.0)
                for task in tasks:
                    task.cancel()
            done, hanging = await asyncio.wait(tasks, timeout=1000.0)
            assert not hanging, self.queue.stats()
            for task in done:
                assert task.cancelled() or not task.exception(), task.exception()
        self.check(left)

    def check(self, left: list[Any]) -> None:
        stats = check_settled(self.queue)
        assert stats.accepted == self.accepted
        assert stats.handled == len(self.handled)
        assert stats.returned == len(left)
        assert len({*self.handled}) == len(self.handled), "something came twice"
        if self.keeps_order:
            for each in {number // PRODUCER for number in self.handled}:
                own = [
                    number
                    for number in self.handled
                    if number // PRODUCER == each and number % PRODUCER < LONE
                ]
                assert own == sorted(own)

    async def consume(self, batch: list[Any]) -> None:
        self.look()
        dice = self.chance.random()
        if dice < 0.3:
            await asyncio.sleep(0)
        elif dice < 0.4:
            await asyncio.sleep(self.chance.random() * 0.003)
        if self.config.retry.attempts > 1 and self.chance.random() < 0.2:
            raise OSError
        self.handled += batch

    def came_in(self, count: int) -> None:
        # A method, since `+=` would look at the count before it awaits.
        self.accepted += count

    def look(self) -> None:
        """No partition ever holds more than it may (C1)."""
        for each in self.queue.stats().partitions:
            assert each.waiting <= each.capacity

    async def produce(self, producer: int) -> None:
        kind = (First, Second)[producer % 2]
        for number in range(self.chance.choice([20, 80])):
            await self.put(kind(producer * PRODUCER + number), kind)
            self.look()
            if self.chance.random() < 0.1:
                await asyncio.sleep(self.chance.choice([0, 0, 0, 0.01]))
            if self.chance.random() < 0.01:
                with contextlib.suppress(DeliveryError):
                    await self.queue.flush()

    async def put(self, item: int, kind: type[int]) -> None:
        """Put it in by one of the ways, and count what was accepted."""
        dice, queue = self.chance.random(), self.queue
        if dice < 0.75:
            self.came_in(await queue.produce(item))
        elif dice < 0.8:
            self.came_in(queue.produce_nowait(item))
        elif dice < 0.85:
            self.came_in(bool(queue.offer(item)))
        elif dice < 0.9:
            await self.put_and_cancel(item)
        elif dice < 0.93:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.chance.choice([0.0, 0.0005])):
                    self.came_in(await queue.produce(item))
        elif dice < 0.95:
            with anyio.move_on_after(self.chance.choice([0.0, 0.0005])):
                self.came_in(await queue.produce(item))
        else:
            some = [
                kind(item + LONE),
                kind(item + LONE + 2_000),
                kind(item + LONE + 4_000),
            ]
            try:
                self.came_in(await queue.produce_many(some))
            except asyncio.CancelledError as error:
                self.came_in(getattr(error, "accepted", 0))
                raise

    async def put_and_cancel(self, item: int) -> None:
        one = asyncio.create_task(self.queue.produce(item))
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)
        one.cancel()
        await asyncio.wait({one})
        self.came_in(not one.cancelled() and one.result())

    async def lone(self, number: int) -> None:
        self.came_in(await self.queue.produce(First(LONE * PRODUCER + number)))

    async def disturb(self) -> None:
        """Do what others do beside producers."""
        numbers = iter(range(1_000))
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(self.chance.random() * 0.02)
            dice = self.chance.random()
            if dice < 0.4:
                self.keeps_order = False
                for task in parts_of(self.queue).tasks.running:
                    if self.chance.random() < 0.5:
                        task.cancel()
            elif dice < 0.6:
                with contextlib.suppress(TimeoutError, DeliveryError):
                    await self.queue.flush(self.chance.choice([0.0001, 0.01]))
            else:
                many = range(self.chance.randrange(1, 2 * self.config.buffer_size + 2))
                tasks = [asyncio.create_task(self.lone(next(numbers))) for _ in many]
                for _ in range(self.chance.randrange(4)):
                    await asyncio.sleep(0)
                self.chance.shuffle(tasks)
                for task in tasks[: self.chance.randrange(len(tasks) + 1)]:
                    task.cancel()
                await asyncio.wait(tasks)
