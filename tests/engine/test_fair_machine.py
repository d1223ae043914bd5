"""The queue's state machine with several keys: all promises hold for each key."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from batchqueue_async import BatchQueue, BatchQueueConfig, WhenFull, fair_by
from batchqueue_async._engine.partitions.key_buffer import KeyBuffer
from tests.engine.stepping_loop import SteppingLoop
from tests.engine.test_line_model import QueueMachine
from tests.support.thorough import examples

KEYS = 3
FIRST = 1_000_000
"""What the keys' numbers are apart."""


def key_of(item: int) -> int:
    return item // FIRST


class FairMachine(QueueMachine):
    """Each call's items are of one key, the next call's of the next one."""

    @initialize(
        buffer_size=st.integers(1, 4),
        max_batch=st.sampled_from([None, 1, 2, 5]),
        quantum=st.integers(1, 3),
    )
    def start(self, buffer_size: int, max_batch: int | None, quantum: int) -> None:
        self.loop = SteppingLoop()
        self.loop.enter()
        config = BatchQueueConfig[int](
            buffer_size=buffer_size,
            max_batch=max_batch,
            when_full=self.when_full,
            on_error=lambda _, __: None,
            selector=fair_by(key_of, weight=lambda key: 1 + key, quantum=quantum),
        )
        self.queue = BatchQueue("q", config)
        self.queue.add_handler(int, self.handle)
        self.producers = []
        self.nowait = {}
        self.numbered = 0
        self.calls = 0
        self.received = []
        self.at_work = None
        self.closing = None
        starting = self.loop.create_task(self.queue.start())
        self.loop.run_dry()
        assert starting.done()

    def number(self, count: int) -> list[int]:
        self.calls += 1
        key = self.calls % KEYS
        return [key * FIRST + each for each in super().number(count)]

    def buffer(self, key: int) -> KeyBuffer[int]:
        buffer = self.queue._parts.placement.partition_of(key * FIRST)
        assert isinstance(buffer, KeyBuffer)
        return buffer

    @rule()
    def produce_nowait(self) -> None:
        (item,) = self.number(1)
        buffer = self.buffer(key_of(item))
        has_room = len(buffer.items) < buffer.maxsize and not buffer.line.head
        self.nowait[item] = self.queue.produce_nowait(item)
        if self.when_full is WhenFull.DROP_OLDEST:
            has_room = True
        assert self.nowait[item] == (has_room and not self.closing)

    def _nobody_is_stuck(self) -> None:
        while self.at_work is None and self.queue.stats().waiting:
            assert self.loop.has_timer, "items wait, and nothing will take them"
            self.loop.skip_to_next_timer()
            self.loop.run_dry()
        for producer in self.producers:
            if producer.is_in_line:
                assert not self.closing, "a producer hangs across shutdown"
                buffer = self.buffer(key_of(producer.items[0]))
                assert len(buffer.items) == buffer.maxsize, "room, and somebody waits"

    @invariant()
    def order_is_that_of_coming(self) -> None:
        for key in range(KEYS):
            own = [item for item in self.received if key_of(item) == key]
            assert own == sorted(own)

    @invariant()
    def the_bound_holds(self) -> None:
        for key in range(KEYS):
            buffer = self.buffer(key)
            assert len(buffer.items) + buffer.line.reserved <= buffer.maxsize

    @invariant()
    def what_waits_has_its_turn(self) -> None:
        """The ring and the count that `linger` goes by, seen from outside."""
        (partition,) = self.queue._parts.partitions
        waiting = self.queue.stats().waiting
        assert bool(partition.items) == bool(waiting)
        assert partition.ready == waiting  # type: ignore[attr-defined]


class FairDropNewestMachine(FairMachine):
    when_full = WhenFull.DROP_NEWEST


class FairDropOldestMachine(FairMachine):
    when_full = WhenFull.DROP_OLDEST


@pytest.mark.parametrize(
    "machine, number",
    [(FairMachine, 150), (FairDropNewestMachine, 40), (FairDropOldestMachine, 40)],
)
def test_a_fair_queue_keeps_its_promises_in_any_order_of_steps(
    machine: type[FairMachine], number: int
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples(number), stateful_step_count=50),
    )
