"""Claims, publications, cancellations and consumers in any order, against a model.

Coroutines are run one callback at a time, so that the window between a wake-up and the
step that it wakes stays open for whatever comes in between.
"""

from __future__ import annotations

import asyncio

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from batchqueue_async.ring import (
    InsufficientCapacity,
    ProducerType,
    RingBuffer,
    Sequence,
)
from tests.engine.stepping_loop import SteppingLoop
from tests.ring.events import Event
from tests.support.thorough import examples


class RingMachine(RuleBasedStateMachine):
    """A ring, one consumer before two last ones, and any number of claims."""

    claims = Bundle("claims")
    waiting = Bundle("waiting")

    def __init__(self) -> None:
        super().__init__()
        self.loop = SteppingLoop()
        self.loop.enter()
        self.open: dict[int, int] = {}
        """High and count of what was claimed and not published."""
        self.filled: set[int] = set()
        self.skipped: set[int] = set()
        self.tasks: list[asyncio.Task[int]] = []
        self.counts: dict[asyncio.Task[int], int] = {}
        self.started: list[int] = []
        """The claims, by index, in the order in which they were made."""

    @initialize(
        capacity=st.sampled_from([1, 2, 4, 8]), kind=st.sampled_from(list(ProducerType))
    )
    def make(self, capacity: int, kind: ProducerType) -> None:
        self.ring = RingBuffer(Event, capacity, producer=kind)
        self.first, self.left, self.right = Sequence(), Sequence(), Sequence()
        self.barriers = {
            self.first: self.ring.new_barrier(),
            self.left: self.ring.new_barrier(self.first),
            self.right: self.ring.new_barrier(self.first),
        }
        self.ring.add_gating_sequences(self.left, self.right)

    @property
    def lowest(self) -> int:
        return min(self.left.value, self.right.value)

    # --- producers

    @rule(target=claims, n=st.integers(1, 8))
    def try_claim(self, n: int) -> object:
        if n > self.ring.capacity:
            return multiple()
        claimed = self.ring.sequencer.claimed
        has_room = claimed + n - self.ring.capacity <= self.lowest
        is_first = not self.ring.sequencer.claims_waiting
        try:
            high = self.ring.try_claim(n)
        except InsufficientCapacity:
            assert not (has_room and is_first)
            return multiple()
        assert has_room
        assert is_first, "nobody overtakes"
        assert high == claimed + n
        self.open[high] = n
        return high

    @rule(target=waiting, n=st.integers(1, 8))
    def claim(self, n: int) -> object:
        if n > self.ring.capacity:
            return multiple()
        index = len(self.tasks)

        async def claiming() -> int:
            self.started.append(index)
            return await self.ring.claim(n)

        task = self.loop.create_task(claiming())
        self.tasks.append(task)
        self.counts[task] = n
        return task

    @rule(index=st.integers(0, 5))
    def step(self, index: int) -> None:
        if self.loop.ready:
            self.loop.step(index % self.loop.ready)

    @rule(task=waiting)
    def cancel(self, task: asyncio.Task[int]) -> None:
        task.cancel()

    @rule(target=claims, task=consumes(waiting))
    def collect(self, task: asyncio.Task[int]) -> object:
        """Take what a claim got, if it is done."""
        self.loop.run_dry()
        if not task.done() or task.cancelled():
            return multiple()
        high = task.result()
        self.open[high] = self.counts.pop(task)
        return high

    @rule(high=consumes(claims), is_good=st.booleans())
    def publish(self, high: int, is_good: bool) -> None:
        low = high - self.open.pop(high) + 1
        numbers = range(low, high + 1)
        for sequence in numbers:
            self.ring[sequence].value = sequence
        if is_good:
            self.ring.publish(low, high)
            self.filled.update(numbers)
        else:
            self.ring.abandon(low, high)
            self.skipped.update(numbers)

    # --- consumers

    @rule(which=st.sampled_from(["first", "left", "right"]), most=st.integers(1, 8))
    def consume(self, which: str, most: int) -> None:
        sequence: Sequence = getattr(self, which)
        available = self.barriers[sequence].available()
        last = min(available, sequence.value + most)
        abandoned = self.ring.sequencer.abandoned
        for number in range(sequence.value + 1, last + 1):
            if number not in abandoned:
                assert self.ring[number].value == number, "overwritten, or a gap"
                assert self.ring.is_available(number)
        sequence.value = max(sequence.value, last)

    # --- what always holds

    @invariant()
    def nobody_is_overtaken(self) -> None:
        if not hasattr(self, "ring"):
            return
        sequencer = self.ring.sequencer
        assert sequencer.claimed - self.ring.capacity <= self.lowest
        assert self.lowest <= self.first.value <= sequencer.published
        assert sequencer.published <= sequencer.claimed

    @invariant()
    def only_what_is_published_is_available(self) -> None:
        if not hasattr(self, "ring"):
            return
        sequencer = self.ring.sequencer
        for number in range(self.lowest + 1, sequencer.published + 1):
            known = number in self.filled or number in self.skipped
            assert known or number in sequencer.abandoned
            if number in self.filled:
                assert number not in sequencer.abandoned
        for high, n in self.open.items():
            assert not any(
                self.ring.is_available(number)
                for number in range(high - n + 1, high + 1)
            )

    def teardown(self) -> None:
        """Publish and consume all: every claim that was not cancelled gets its turn."""
        try:
            if hasattr(self, "ring"):
                self._drain()
        finally:
            self.loop.leave()

    def _drain(self) -> None:
        for _ in range(len(self.tasks) + len(self.open) + 2):
            self.loop.run_dry()
            for task in list(self.counts):
                if task.done() and not task.cancelled():
                    self.open[task.result()] = self.counts.pop(task)
            for high in list(self.open):
                self.publish(high, is_good=True)
            for which in ("first", "left", "right"):
                self.consume(which, 10**6)
        self.loop.run_dry()
        assert all(task.done() for task in self.tasks), "a lost wake-up"
        in_order = [self.tasks[index] for index in self.started]
        granted = [task.result() for task in in_order if not task.cancelled()]
        assert granted == sorted(set(granted)), "first come, first served"
        sequencer = self.ring.sequencer
        assert self.first.value == sequencer.published == sequencer.claimed
        assert not self.filled & self.skipped
        assert sequencer.claims_waiting == 0
        assert not sequencer._queue._granted


RingMachine.TestCase.settings = settings(
    max_examples=examples(120), stateful_step_count=40
)
TestRingMachine = RingMachine.TestCase
