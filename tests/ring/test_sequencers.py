"""The contract of both sequencers, with every wait strategy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest

from batchqueue_async.ring import (
    BlockingWait,
    Disruptor,
    InsufficientCapacity,
    MultiProducerSequencer,
    RingError,
    RingHalted,
    Sequence,
    SingleProducerSequencer,
)
from tests.ring.events import turns

Sequencer = SingleProducerSequencer | MultiProducerSequencer
KINDS = [SingleProducerSequencer, MultiProducerSequencer]


def test_nothing_is_claimed_or_published_at_first(sequencer: Sequencer) -> None:
    assert sequencer.cursor == -1
    assert sequencer.published == -1
    assert sequencer.remaining_capacity() == 16
    assert not any(sequencer.is_available(number) for number in range(-40, 40))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("capacity", [0, -1, 3, 12, 1023, True, 8.0])
def test_the_capacity_is_a_power_of_two(
    kind: Callable[[int], Sequencer], capacity: int
) -> None:
    message = f"^capacity must be a power of two, got {capacity}$"
    with pytest.raises(RingError, match=message):
        kind(capacity)
    with pytest.raises(ValueError, match=message):
        kind(capacity)


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_of_an_int_enum_is_a_capacity(
    kind: Callable[[int], Sequencer],
) -> None:
    sizes = IntEnum("sizes", {"SMALL": 16})
    assert kind(sizes.SMALL).remaining_capacity() == 16


@pytest.mark.parametrize(
    "argument, message",
    [
        (
            {"wait": BlockingWait},
            r"wait must be a wait strategy, as in BlockingWait\(\)",
        ),
        ({"wait": "blocking"}, r"wait must be a wait strategy, as in BlockingWait\(\)"),
        (
            {"producer": "MULTI"},
            "producer must be ProducerType.SINGLE or ProducerType.",
        ),
        ({"factory": 1}, "factory must be callable"),
    ],
)
def test_another_kind_of_argument_is_refused(
    argument: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        Disruptor(**{"factory": list, "size": 8, **argument})


@pytest.mark.parametrize("n", [0, -1, 17])
async def test_the_count_is_one_to_the_capacity(sequencer: Sequencer, n: int) -> None:
    message = re.escape(f"n must be 1 to 16, got {n}")
    for error in (RingError, ValueError):
        with pytest.raises(error, match=message):
            await sequencer.claim(n)
        with pytest.raises(error, match=message):
            sequencer.try_claim(n)
    assert sequencer.claimed == -1


async def test_a_whole_ring_may_be_claimed_at_once(sequencer: Sequencer) -> None:
    sequencer.add_gating_sequences(Sequence())

    assert await sequencer.claim(16) == 15
    assert sequencer.remaining_capacity() == 0
    with pytest.raises(InsufficientCapacity):
        sequencer.try_claim()


async def test_only_the_last_lap_before_the_slowest_consumer_may_be_claimed(
    sequencer: Sequencer,
) -> None:
    consumers = [Sequence(value) for value in (7, 8, 9, 10, 3, 4, 5, 6, 11)]
    sequencer.publish(0, await sequencer.claim(12))
    sequencer.add_gating_sequences(*consumers)

    assert [sequencer.try_claim() for _ in range(8)] == [*range(12, 20)]
    with pytest.raises(InsufficientCapacity):
        sequencer.try_claim()
    claim = asyncio.create_task(sequencer.claim())
    await turns()
    assert not claim.done()

    consumers[0].value = 8  # Not the slowest.
    await turns()
    assert not claim.done()
    consumers[4].value = 4
    assert await claim == 20


async def test_the_minimum_is_computed_only_when_it_is_passed(
    sequencer: Sequencer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    class Counting(Sequence):
        @property
        def value(self) -> int:
            nonlocal reads
            reads += 1
            return self._value

        @value.setter
        def value(self, value: int) -> None:
            self._value = value

    consumer = Counting()
    sequencer.add_gating_sequences(consumer)
    reads = 0
    for _ in range(16):
        await sequencer.claim()
    assert reads == 0

    consumer.value = 9
    assert await sequencer.claim() == 16
    assert reads == 1
    for _ in range(9):
        await sequencer.claim()
    assert reads == 1


async def test_without_consumers_nothing_waits(sequencer: Sequencer) -> None:
    for number in range(100):
        assert await sequencer.claim() == number
        sequencer.publish(number)
    assert sequencer.remaining_capacity() == 16


async def test_without_consumers_a_claim_waits_for_the_publication_of_the_last_lap(
    sequencer: Sequencer,
) -> None:
    await sequencer.claim(16)
    claim = asyncio.create_task(sequencer.claim(2))
    await turns()
    assert not claim.done()
    sequencer.publish(1, 15)
    await turns()
    assert not claim.done()
    sequencer.publish(0)
    assert await claim == 17


async def test_a_consumer_that_leaves_holds_nobody_back(sequencer: Sequencer) -> None:
    consumer = Sequence()
    sequencer.add_gating_sequences(consumer)
    sequencer.publish(0, await sequencer.claim(16))
    claim = asyncio.create_task(sequencer.claim(2))
    await turns()

    assert sequencer.remove_gating_sequence(consumer)
    assert not sequencer.remove_gating_sequence(consumer)
    assert await claim == 17


async def test_a_late_consumer_gates_from_where_it_stands(
    sequencer: Sequencer,
) -> None:
    sequencer.publish(0, await sequencer.claim(10))
    sequencer.add_gating_sequences(Sequence(9))

    assert await sequencer.claim(16) == 25
    with pytest.raises(InsufficientCapacity):
        sequencer.try_claim()


async def test_a_consumer_that_is_behind_is_noticed_at_once(
    sequencer: Sequencer,
) -> None:
    """What was known about the room before it came does not count any more."""
    sequencer.publish(0, await sequencer.claim(10))
    sequencer.publish(10, await sequencer.claim(10))
    sequencer.add_gating_sequences(Sequence(7))

    assert [sequencer.try_claim() for _ in range(4)] == [20, 21, 22, 23]
    with pytest.raises(InsufficientCapacity):
        sequencer.try_claim()


def test_published_is_available_until_its_slot_is_used_again(
    sequencer: Sequencer,
) -> None:
    for lap in range(3):
        high = sequencer.try_claim(16)
        assert not any(sequencer.is_available(high - back) for back in range(16))
        sequencer.publish(high - 15, high)
        assert all(sequencer.is_available(high - back) for back in range(16))
        assert not sequencer.is_available(high - 16)
        assert not sequencer.is_available(high + 1)
        assert sequencer.published == high == 16 * lap + 15


def test_consumers_never_see_a_gap(sequencer: Sequencer) -> None:
    for _ in range(5):  # The last lap's publications never count.
        low = sequencer.try_claim(10) - 9

        sequencer.publish(low + 1, low + 3)
        sequencer.publish(low + 9)
        sequencer.publish(low + 5)
        assert sequencer.published == low - 1
        sequencer.publish(low)
        assert sequencer.published == low + 3
        sequencer.publish(low + 4)
        assert sequencer.published == low + 5
        sequencer.publish(low + 6, low + 8)
        assert sequencer.published == low + 9


def test_a_sequence_shows_its_value() -> None:
    sequence = Sequence()
    sequence.value += 8
    assert repr(sequence) == "Sequence(7)"


def test_what_is_not_claimed_cannot_be_published(sequencer: Sequencer) -> None:
    sequencer.try_claim(5)
    for low, high in [(0, 5), (5, 5), (-1, 0), (3, 2)]:
        with pytest.raises(RingError, match="is not claimed, or published already"):
            sequencer.publish(low, high)
    assert sequencer.published == -1


def test_a_range_that_is_far_too_long_is_refused_at_once(
    sequencer: Sequencer,
) -> None:
    """All of it was gone through, for ever."""
    sequencer.try_claim(2)
    for verb in (sequencer.publish, sequencer.abandon):
        with pytest.raises(RingError, match="is not claimed, or published already"):
            verb(0, 2**63)


def test_nothing_is_published_twice(sequencer: Sequencer) -> None:
    sequencer.try_claim(8)
    sequencer.publish(0, 1)
    sequencer.publish(4, 5)
    for low, high in [(0, 0), (1, 2), (4, 4), (5, 6), (3, 6), (2, 4)]:
        with pytest.raises(RingError, match="is not claimed, or published already"):
            sequencer.publish(low, high)
    for number in (1, 4, 5):
        with pytest.raises(RingError, match="is not claimed, or published already"):
            sequencer.publish(number)
    assert sequencer.published == 1
    sequencer.publish(2, 3)
    assert sequencer.published == 5


def test_the_cursor_moves_at_publication_for_one_and_at_claim_for_many() -> None:
    single, multi = SingleProducerSequencer(8), MultiProducerSequencer(8)
    for each in (single, multi):
        each.try_claim(3)

    assert (single.cursor, multi.cursor) == (-1, 2)
    for each in (single, multi):
        each.publish(0, 1)
    assert (single.cursor, multi.cursor) == (1, 2)


async def test_publication_wakes_a_waiting_barrier(sequencer: Sequencer) -> None:
    barrier = sequencer.new_barrier()
    wait = asyncio.create_task(barrier.wait_for(2))
    await turns()
    for number in range(2):
        sequencer.publish(sequencer.try_claim())
        await turns()
        assert not wait.done(), number

    sequencer.publish(sequencer.try_claim())
    assert await wait == 2


async def test_a_barrier_waits_for_its_slowest_dependency(
    sequencer: Sequencer,
) -> None:
    first, second = Sequence(), Sequence()
    barrier = sequencer.new_barrier(first, second)
    sequencer.publish(0, sequencer.try_claim(10))
    wait = asyncio.create_task(barrier.wait_for(4))
    for one, other in [(2, 3), (6, 3), (7, 4)]:
        await turns()
        assert not wait.done()
        first.value, second.value = one, other

    assert await wait == 4


async def test_an_alert_ends_a_wait(sequencer: Sequencer) -> None:
    barrier = sequencer.new_barrier()
    wait = asyncio.create_task(barrier.wait_for(0))
    await turns()

    barrier.alert()
    with pytest.raises(RingHalted):
        await wait
    with pytest.raises(RingHalted):
        await barrier.wait_for(0)
    sequencer.publish(sequencer.try_claim())
    barrier.clear_alert()
    assert await barrier.wait_for(0) == 0


async def test_a_cancelled_wait_leaves_nothing_behind(sequencer: Sequencer) -> None:
    barrier = sequencer.new_barrier(dependency := Sequence())
    for _ in range(3):
        wait = asyncio.create_task(barrier.wait_for(0))
        await turns(3)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait

    assert not barrier._sleepers
    assert not dependency._waiters
    assert not sequencer._waiters


async def test_halting_ends_waits_and_claims(sequencer: Sequencer) -> None:
    sequencer.add_gating_sequences(Sequence())
    await sequencer.claim(16)
    claim = asyncio.create_task(sequencer.claim())
    wait = asyncio.create_task(sequencer.new_barrier().wait_for(0))
    await turns()

    cause = OSError("disk full")
    sequencer.halt(cause)
    for task in (claim, wait):
        with pytest.raises(RingHalted):
            await task
    with pytest.raises(RingHalted, match=r"^the ring was halted$") as caught:
        sequencer.try_claim()
    assert caught.value.__cause__ is cause
    with pytest.raises(RingHalted):
        await sequencer.claim()
