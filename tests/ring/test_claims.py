"""Claims that wait: in line, cancelled, and granted while nobody looks."""

from __future__ import annotations

import asyncio

import pytest

from batchqueue_async.ring import InsufficientCapacity, RingBuffer, RingHalted
from tests.ring.events import Event, gated_ring, turns


async def claims(ring: RingBuffer[Event], *counts: int) -> list[asyncio.Task[int]]:
    """Start claims that wait, in this order."""
    tasks = []
    for n in counts:
        tasks.append(asyncio.create_task(ring.claim(n)))
        await turns(2)
    return tasks


async def cancelled(task: asyncio.Task[int]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_claims_are_served_in_order() -> None:
    ring, consumer = gated_ring(4)
    await ring.claim(4)
    first, second, third = await claims(ring, 3, 1, 2)

    consumer.value = 1
    await turns()
    assert not any(task.done() for task in (first, second, third)), "3 don't fit yet"
    with pytest.raises(InsufficientCapacity):
        ring.try_claim(1)
    consumer.value = 3
    await turns()
    assert (first.result(), second.result(), third.done()) == (6, 7, False)
    consumer.value = 5
    assert await third == 9


async def test_who_comes_later_never_overtakes() -> None:
    ring, consumer = gated_ring(4)
    await ring.claim(4)
    (waiting,) = await claims(ring, 2)

    consumer.value = 0  # Room for one, but the first in line wants two.
    with pytest.raises(InsufficientCapacity):
        ring.try_claim()
    late = asyncio.create_task(ring.claim())
    await turns()
    assert not late.done()
    consumer.value = 2
    assert (await waiting, await late) == (5, 6)


async def test_a_granted_claim_is_ahead_before_it_has_run() -> None:
    ring, consumer = gated_ring(4)
    await ring.claim(4)
    (waiting,) = await claims(ring, 1)

    consumer.value = 3
    assert ring.try_claim() == 5
    assert await waiting == 4


async def test_a_cancelled_claim_passes_its_turn_on() -> None:
    ring, consumer = gated_ring(4)
    await ring.claim(4)
    first, second = await claims(ring, 3, 1)

    consumer.value = 0
    await cancelled(first)
    assert await second == 4
    assert ring.sequencer.claims_waiting == 0


async def test_a_claim_cancelled_after_its_grant_leaves_no_hole() -> None:
    ring, consumer = gated_ring(4)
    await ring.claim(4)
    first, second, third = await claims(ring, 1, 1, 2)

    consumer.value = 2  # Grants the first two; none of them has run.
    await cancelled(first)
    assert await second == 4
    consumer.value = 3
    assert await third == 6
    assert ring.sequencer.abandoned == set()


async def test_the_last_claim_cancelled_after_its_grant_gives_it_back() -> None:
    ring, consumer = gated_ring(4)
    await ring.claim(4)
    (task,) = await claims(ring, 2)

    consumer.value = 3
    await cancelled(task)
    assert ring.cursor == 3
    assert ring.try_claim(4) == 7


async def test_what_nobody_can_have_any_more_is_abandoned() -> None:
    """Somebody claimed after the grant, so there is a hole, which consumers skip."""
    ring, consumer = gated_ring(8)
    await ring.claim(8)
    ring.publish(0, 7)
    (task,) = await claims(ring, 2)

    consumer.value = 7
    assert ring.try_claim() == 10
    await cancelled(task)
    assert ring.sequencer.abandoned == {8, 9}
    ring.publish(10)
    assert ring.new_barrier().available() == 10


async def test_the_abandoned_are_forgotten_when_their_slots_are_claimed() -> None:
    ring, consumer = gated_ring(4)
    for number in range(50):
        ring.abandon(await ring.claim())
        consumer.value = number
    assert len(ring.sequencer.abandoned) <= 4


async def test_closing_refuses_those_who_wait_and_spares_those_who_have() -> None:
    ring, consumer = gated_ring(4)
    ring.publish(0, await ring.claim(4))
    granted, waiting = await claims(ring, 1, 4)

    consumer.value = 0
    ring.sequencer.close()
    assert await granted == 4
    with pytest.raises(RingHalted, match=r"^the ring is closed$"):
        await waiting
    ring.publish(4)
    assert ring.is_available(4)


async def test_claims_that_waited_are_counted() -> None:
    ring, consumer = gated_ring(2)
    await ring.claim(2)
    tasks = await claims(ring, 1, 1)
    assert (ring.sequencer.claims_waited, ring.sequencer.claims_waiting) == (2, 2)

    consumer.value = 1
    await asyncio.gather(*tasks)
    await cancelled((await claims(ring, 1))[0])
    assert (ring.sequencer.claims_waited, ring.sequencer.claims_waiting) == (3, 0)
    assert not consumer._waiters


async def test_a_full_ring_watches_one_sequence_at_a_time() -> None:
    ring, consumer = gated_ring(2)
    await ring.claim(2)
    tasks = await claims(ring, 1, 1, 1)
    assert len(consumer._waiters) == 1
    for task in tasks:
        await cancelled(task)
    assert not consumer._waiters
