"""Random graphs of all kinds of handlers, random producers, on an unfair loop."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from batchqueue_async.ring import (
    BlockingWait,
    Disruptor,
    HandlerGroup,
    ProducerType,
    RewindBatch,
    RingBuffer,
    SleepingWait,
    WaitStrategy,
    YieldingWait,
)
from tests.ring.events import Event, turns
from tests.support.shuffled_loop import ShuffledLoop

WAITS: list[WaitStrategy] = [BlockingWait(), YieldingWait(), SleepingWait(3, 0.01)]


class Node:
    """A handler that knows what it comes after, and what each event must hold."""

    def __init__(self, name: str, after: list[Node], chance: random.Random) -> None:
        self.name = name
        self.after = after
        self.passed: list[int] = []
        self.failed: list[int] = []
        self._chance = chance

    def check(self, event: Event, sequence: int) -> None:
        assert event.value == sequence * 7, "overwritten"
        for node in self.after:
            assert sequence in node.done, f"{self.name} is before {node.name}"

    @property
    def done(self) -> set[int]:
        return {*self.passed, *self.failed}

    def take(self, sequence: int) -> None:
        """Pass the event, or fail; a batch that is rewound has its events again."""
        while self.passed and self.passed[-1] >= sequence:
            self.passed.pop()
        if self._chance.random() < 0.02:
            raise RewindBatch
        if self._chance.random() < 0.05:
            self.failed.append(sequence)
            raise ValueError
        self.passed.append(sequence)


class Plain(Node):
    def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        self.check(event, sequence)
        self.take(sequence)


class Slow(Node):
    async def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        await turns(self._chance.randrange(3))
        self.check(event, sequence)
        self.take(sequence)


class Batches(Node):
    async def on_batch(self, events: list[Event], first_sequence: int) -> None:
        for sequence, event in enumerate(events, first_sequence):
            self.check(event, sequence)
        await turns(self._chance.randrange(3))
        self.passed.extend(range(first_sequence, first_sequence + len(events)))


def build(
    disruptor: Disruptor[Event], chance: random.Random, errors: list[object]
) -> list[list[Node]]:
    """Add random handlers; returns them with those of one pool together."""
    groups: list[tuple[list[Node], HandlerGroup[Event]]] = []
    for number in range(chance.randint(1, 6)):
        before = chance.sample(groups, chance.randint(0, min(2, len(groups))))
        after = [Together(nodes) for nodes, _ in before]
        group: Any = disruptor
        if before:
            group = before[0][1]
            for _, other in before[1:]:
                group = group.and_(other)
        count = chance.choice([1, 1, 3])
        kinds: list[type[Node]] = [Plain, Slow] if count > 1 else [Plain, Slow, Batches]
        nodes = [
            chance.choice(kinds)(f"{number}.{index}", list(after), chance)
            for index in range(count)
        ]
        if count > 1:
            added = group.handle_events_with_worker_pool(*nodes)
        else:
            limit = chance.choice([None, 1, 3])
            added = group.handle_events_with(*nodes, max_batch=limit)
        groups.append((nodes, added))
    disruptor.handle_exceptions_with(
        lambda error, *_: (
            None if isinstance(error, ValueError) else errors.append(error)
        )
    )
    return [nodes for nodes, _ in groups]


class Together(Node):
    """The workers of a pool, for those that come after it."""

    def __init__(self, nodes: list[Node]) -> None:
        super().__init__("+".join(node.name for node in nodes), [], random.Random(0))
        self._nodes = nodes

    @property
    def done(self) -> set[int]:
        return set().union(*(node.done for node in self._nodes))


def mark(event: Event, sequence: int, published: list[int]) -> None:
    event.value = sequence * 7
    published.append(sequence)


async def produce(
    ring: RingBuffer[Event], chance: random.Random, published: list[int]
) -> None:
    for _ in range(60):
        match chance.randrange(5):
            case 0:
                ring.abandon(await ring.claim())
            case 1:
                task = asyncio.create_task(ring.publish_event(mark, published))
                await turns(chance.randrange(4))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            case 2:
                slot = ring.slot()
                async with slot as event:
                    await turns(chance.randrange(3))
                    mark(event, slot.sequence, published)
            case _:
                await ring.publish_event(mark, published)


async def run(seed: int) -> None:
    chance = random.Random(seed)
    kind = chance.choice(list(ProducerType))
    size = 2 ** chance.randrange(6)
    disruptor = Disruptor(Event, size, kind, chance.choice(WAITS))
    errors: list[object] = []
    published: list[int] = []
    pools = build(disruptor, chance, errors)
    async with disruptor as ring:
        producers = (produce(ring, chance, published) for _ in range(2))
        await asyncio.gather(*producers)
    assert not errors
    for nodes in pools:
        done = sorted(each for node in nodes for each in (*node.passed, *node.failed))
        assert done == sorted(published), [node.name for node in nodes]
        assert all(node.passed == sorted(node.passed) for node in nodes)
    assert ring.remaining_capacity() == size


@pytest.mark.parametrize("seed", range(60))
def test_every_graph_sees_every_event_once_and_in_order(seed: int) -> None:
    with asyncio.Runner(loop_factory=lambda: ShuffledLoop(seed)) as runner:
        runner.run(run(seed))
