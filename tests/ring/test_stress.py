"""A diamond graph under load; every payload tells which sequence it belongs to."""

from __future__ import annotations

import asyncio
import random

import pytest

from batchqueue_async.ring import (
    BlockingWait,
    Disruptor,
    ProducerType,
    RingBuffer,
    WaitStrategy,
)
from tests.ring.events import turns
from tests.support.shuffled_loop import ShuffledLoop


class Payload:
    """Several fields, so that a torn or overwritten event shows."""

    __slots__ = ("a", "b", "c")

    def __init__(self) -> None:
        self.a = self.b = self.c = -1


def derive(event: Payload, sequence: int) -> None:
    event.a, event.b, event.c = sequence, sequence * 31 + 7, ~sequence


class Checker:
    """Checks each payload against its sequence; slow now and then."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.next = 0
        self.count = 0
        self._chance = random.Random(seed)

    async def on_event(self, event: Payload, sequence: int, end_of_batch: bool) -> None:
        if self._chance.random() < 0.05:
            await asyncio.sleep(0)
        assert sequence >= self.next, "in order, none twice"
        assert (event.a, event.b, event.c) == (sequence, sequence * 31 + 7, ~sequence)
        self.next = sequence + 1
        self.count += 1


async def produce(ring: RingBuffer[Payload], seed: int, count: int) -> int:
    """Publish in all ways; some claims fail or are cancelled. Returns how many."""
    chance = random.Random(seed)
    published = 0
    for _ in range(count):
        way = chance.randrange(6)
        if way == 0:
            published += ring.try_publish_event(derive)
        elif way == 1:
            n = chance.randint(1, min(5, ring.capacity))
            high = await ring.claim(n)
            await turns(chance.randrange(3))
            for sequence in range(high - n + 1, high + 1):
                derive(ring[sequence], sequence)
            ring.publish(high - n + 1, high)
            published += n
        elif way == 2:
            ring.abandon(await ring.claim())
        elif way == 3:
            impatient = asyncio.create_task(ring.publish_event(derive))
            await turns(chance.randrange(3))
            impatient.cancel()
            try:
                await impatient
                published += 1
            except asyncio.CancelledError:
                pass
        else:
            await ring.publish_event(derive)
            published += 1
    return published


@pytest.mark.parametrize("size", [2, 64])
async def test_a_diamond_sees_what_was_published(
    producer: ProducerType, wait: WaitStrategy, size: int
) -> None:
    errors: list[object] = []
    checkers = [Checker(name, seed) for seed, name in enumerate("abcd")]
    first, left, right, last = checkers
    disruptor = Disruptor(Payload, size, producer=producer, wait=wait)
    disruptor.handle_exceptions_with(lambda *args: errors.append(args))
    disruptor.handle_events_with(first).then(left, right).then(last)
    producers = 1 if producer is ProducerType.SINGLE else 3
    async with disruptor as ring:
        counts = await asyncio.gather(
            *(produce(ring, seed, 100) for seed in range(producers))
        )
    assert not errors
    assert [checker.count for checker in checkers] == [sum(counts)] * 4


@pytest.mark.real_time
async def test_a_diamond_on_real_loops(
    producer: ProducerType, wait: WaitStrategy
) -> None:
    await test_a_diamond_sees_what_was_published(producer, wait, 16)


@pytest.mark.parametrize("seed", range(40))
def test_a_diamond_on_a_loop_that_is_unfair(seed: int) -> None:
    """Tasks that could run go on waiting, and later ones run first."""
    with asyncio.Runner(loop_factory=lambda: ShuffledLoop(seed)) as runner:
        kind = list(ProducerType)[seed % 2]
        runner.run(
            test_a_diamond_sees_what_was_published(
                kind, BlockingWait(), 2 ** (seed % 4)
            )
        )
