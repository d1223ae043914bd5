"""Random graphs of queues whose handlers wait for each other, drawn from a seed.

An item says how many steps it still has to go; a handler passes it on to other queues,
in one of the ways in which handlers wait.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    PartitionSelector,
    Rebalancing,
    Retry,
    SharedDrainTasks,
    WouldDeadlock,
    by_type,
)
from tests.support.oracle import check_accounts, check_settled

PATIENCE = 10_000.0
"""Of virtual time: beyond it somebody hangs who wakes from time to time."""


class Item:
    """Goes so many steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps


class A(Item): ...


class B(Item): ...


class C(Item): ...


KINDS = (A, B, C)


class AnyPlan:
    """Moves whatever it likes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def assign(self, loads: Any, owners: Any, drain_tasks: int) -> list[int]:  # noqa: ANN401
        return [self._chance.randrange(drain_tasks) for _ in owners]


class Chains:
    """Queues, what feeds them, and what is counted meanwhile."""

    def __init__(self, seed: int, *, cyclic: bool) -> None:
        self.chance = random.Random(seed)
        self.is_cyclic = cyclic
        self.queues: list[BatchQueue[Item]] = []
        self.refused = 0
        self.delivered = 0
        # A handler whose wait was cancelled goes on at once, without its permit.
        self.cancels = self.chance.random() < 0.3
        self.permits = {name: self.chance.randint(1, 2) for name in ("one", "two")}
        self.running = dict.fromkeys(self.permits, 0)

    async def play(self) -> None:
        chance = self.chance
        async with asyncio.timeout(PATIENCE):
            async with BatchQueueManager() as manager:
                for number in range(chance.randint(2, 6)):
                    await self._add(manager, number)
                await asyncio.gather(*map(self._feed, range(chance.randint(1, 6))))
                if chance.random() < 0.5:
                    await asyncio.gather(
                        *(each.flush() for each in self.queues), return_exceptions=True
                    )
                for queue in self.queues:
                    check_accounts(queue)
                await manager.shutdown_all(None)
        for queue in self.queues:
            stats = check_settled(queue)
            assert not stats.returned, f"{queue}: {stats}"
            assert not stats.unhandled, f"{queue}: {stats}"
            self.delivered += stats.handled + stats.failed
        assert not any(self.running.values())

    async def _add(self, manager: BatchQueueManager, number: int) -> None:
        chance = self.chance
        group = chance.choice([None, *self.permits])
        handler = Handler(self, number, group)
        has_consumer = chance.random() < 0.4
        drain_tasks: Any = DrainTaskPolicy.fixed(chance.randint(1, 3))
        if group is not None:
            policy = DrainTaskPolicy.fixed(self.permits[group])
            drain_tasks = SharedDrainTasks(group, policy)
        selectors: list[PartitionSelector[Item]] = [
            by_type,
            lambda _, partitions: chance.randrange(partitions),
        ]
        config = BatchQueueConfig[Item](
            drain_tasks=drain_tasks,
            partitions=PartitionPolicy.fixed(chance.randint(1, 3)),
            buffer_size=chance.randint(1, 3),
            max_batch=chance.choice([None, 1, 2]),
            linger=chance.choice([0.0, 0.0, 0.05]),
            selector=chance.choice(selectors),
            consumer=handler if has_consumer else None,
            idle=IdleBackoff(0.001, 0.01),
            handler_timeout=chance.choice([None, None, 60.0]),
            retry=Retry(chance.choice([1, 1, 2]), wait_initial=0.01),
            rebalancing=chance.choice([None, Rebalancing(AnyPlan(chance), 0.05)]),
            on_error=handler.on_error,
        )
        queue = await manager.create(f"q{number}", config)
        self.queues.append(queue)
        if not has_consumer:
            shared = chance.random() < 0.5
            for kind in KINDS:
                queue.add_handler(
                    kind, handler if shared else Handler(self, number, group)
                )

    async def _feed(self, number: int) -> None:
        chance = random.Random(self.chance.random())
        for _ in range(chance.randint(1, 12)):
            queue = chance.choice(self.queues)
            await queue.produce(chance.choice(KINDS)(chance.randint(0, 3)))
            if chance.random() < 0.2:
                await asyncio.sleep(chance.choice([0, 0.001, 0.02]))


class Handler:
    """Passes on what it gets."""

    def __init__(self, chains: Chains, number: int, group: str | None) -> None:
        self._chains = chains
        self._number = number
        self._group = group
        self._chance = random.Random(chains.chance.random())
        if self._chance.random() < 0.3:
            self.on_flush = self._hook
        if self._chance.random() < 0.1:
            self.on_idle = self._idle
        self._idles = 0

    async def consume(self, batch: list[Item]) -> None:
        with Running(self._chains, self._group):
            for item in batch:
                await self._pass_on(item.steps)
            if self._chance.random() < 0.05:
                raise ValueError

    async def on_error(self, batch: list[Item], _: BaseException) -> None:
        with Running(self._chains, self._group):
            if self._chance.random() < 0.5:
                await self._pass_on(min(1, *(each.steps for each in batch), 1))

    async def _hook(self) -> None:
        await self._pass_on(1, is_counted=False)

    async def _idle(self) -> None:
        self._idles += 1
        if self._idles <= 3:
            with Running(self._chains, self._group):
                await self._pass_on(1)

    async def _pass_on(self, steps: int, *, is_counted: bool = True) -> None:
        chance, chains = self._chance, self._chains
        if chance.random() < 0.3:
            await asyncio.sleep(chance.choice([0, 0.001, 0.01]))
        first = 0 if chains.is_cyclic else self._number + 1
        others = chains.queues[first:]
        if not steps or not others:
            return
        act = chance.choice(ACTS)
        if act is timed and not chains.cancels:
            act = one
        try:
            with Waiting(chains, self._group if is_counted else None):
                await act(chance, others, lambda: chance.choice(KINDS)(steps - 1))
        except WouldDeadlock:
            chains.refused += 1
            if chance.random() < 0.3:
                raise


Act = Callable[
    [random.Random, list[BatchQueue[Item]], Callable[[], Item]], Awaitable[None]
]


async def one(
    chance: random.Random, queues: list[BatchQueue[Item]], new: Callable[[], Item]
) -> None:
    await chance.choice(queues).produce(new())


async def many(
    chance: random.Random, queues: list[BatchQueue[Item]], new: Callable[[], Item]
) -> None:
    await chance.choice(queues).produce_many([new() for _ in range(4)])


async def by_tasks(
    chance: random.Random, queues: list[BatchQueue[Item]], new: Callable[[], Item]
) -> None:
    answers = await asyncio.gather(
        *(chance.choice(queues).produce(new()) for _ in range(3)),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


async def timed(
    chance: random.Random, queues: list[BatchQueue[Item]], new: Callable[[], Item]
) -> None:
    try:
        async with asyncio.timeout(chance.choice([0.001, 0.02])):
            await chance.choice(queues).produce_many([new() for _ in range(4)])
    except TimeoutError:
        pass


async def flush(
    chance: random.Random, queues: list[BatchQueue[Item]], new: Callable[[], Item]
) -> None:
    try:
        await chance.choice(queues).flush()
    except WouldDeadlock:
        raise
    except Exception:  # noqa: BLE001  # of failed items there are many
        pass


async def end(
    chance: random.Random, queues: list[BatchQueue[Item]], new: Callable[[], Item]
) -> None:
    if chance.random() < 0.1:
        await chance.choice(queues).shutdown(None)


ACTS: list[Act] = [one, one, one, many, many, by_tasks, timed, flush, end]


class Running:
    """A handler that runs: with the permits of its group, not more than those."""

    _by = 1

    def __init__(self, chains: Chains, group: str | None) -> None:
        self._chains = chains
        self._group = group

    def __enter__(self) -> None:
        self._count(self._by)

    def __exit__(self, *exception: object) -> None:
        self._count(-self._by)

    def _count(self, more: int) -> None:
        chains, group = self._chains, self._group
        if group is not None:
            chains.running[group] += more
            is_kept = chains.running[group] <= chains.permits[group]
            assert is_kept or chains.cancels, "more run than there are permits"


class Waiting(Running):
    """It waits, and has lent its permit; afterwards it has one again."""

    _by = -1
