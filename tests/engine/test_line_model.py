"""Producers, cancellations, a drain task and its handler, in any order of steps.

The machine runs the queue's own tasks on a `SteppingLoop`, and checks A1, B1, C1, C2
after each step and "nobody is stuck" whenever nothing is ready. It knows the public
names alone.
"""

import asyncio
from collections.abc import Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from batchqueue_async import BatchQueue, BatchQueueConfig, WhenFull
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.waiting_line import LoopWaiter, Waiter
from tests.engine.stepping_loop import SteppingLoop
from tests.support.oracle import check_accounts, check_settled
from tests.support.thorough import examples


class Producer:
    """One call of `produce` or `produce_many`; its items are numbered when it runs."""

    def __init__(self, machine: "QueueMachine", count: int, form: str) -> None:
        self.items: list[int] = []
        self.has_begun = False
        self._machine = machine
        self._count = count
        self._form = form
        self.task = machine.loop.create_task(self._run())

    async def _run(self) -> int:
        self.has_begun = True
        self.items = self._machine.number(self._count)
        queue = self._machine.queue
        if self._form == "one":
            return await queue.produce(self.items[0])
        items: Iterable[int] = self.items if self._form == "list" else iter(self.items)
        return await queue.produce_many(items)

    @property
    def is_in_line(self) -> bool:
        return self.has_begun and not self.task.done()

    @property
    def accepted(self) -> int | None:
        """How many of its items were accepted; None where the caller isn't told."""
        return None if self.task.cancelled() else int(self.task.result())


class QueueMachine(RuleBasedStateMachine):
    when_full = WhenFull.WAIT

    @initialize(buffer_size=st.integers(1, 4), max_batch=st.sampled_from([None, 1, 2]))
    def start(self, buffer_size: int, max_batch: int | None) -> None:
        self.loop = SteppingLoop()
        self.loop.enter()
        config = BatchQueueConfig[int](
            buffer_size=buffer_size,
            max_batch=max_batch,
            when_full=self.when_full,
            on_error=lambda _, __: None,
        )
        self.queue = BatchQueue("q", config)
        self.queue.add_handler(int, self.handle)
        self.producers: list[Producer] = []
        self.nowait: dict[int, bool] = {}
        self.numbered = 0
        self.received: list[int] = []
        self.at_work: asyncio.Future[None] | None = None
        self.closing: asyncio.Task[list[int]] | None = None
        starting = self.loop.create_task(self.queue.start())
        self.loop.run_dry()
        assert starting.done()

    async def handle(self, batch: list[int]) -> None:
        assert self.at_work is None, "entered twice"
        self.received += batch
        self.at_work = self.loop.create_future()
        try:
            await self.at_work
        finally:
            self.at_work = None

    def number(self, count: int) -> list[int]:
        self.numbered += count
        return list(range(self.numbered - count, self.numbered))

    # --- what may happen

    @rule()
    def produce(self) -> None:
        self.producers.append(Producer(self, 1, "one"))

    @rule(count=st.integers(0, 6), form=st.sampled_from(["list", "iterator"]))
    def produce_many(self, count: int, form: str) -> None:
        self.producers.append(Producer(self, count, form))

    @rule()
    def produce_nowait(self) -> None:
        stats = self.queue.stats()
        # Whose item was placed waits no longer, also if it has not run since.
        has_line = stats.waiting_producers > 0
        has_room = stats.waiting < stats.capacity and not self.closing
        (item,) = self.number(1)
        self.nowait[item] = self.queue.produce_nowait(item)
        if self.when_full is WhenFull.DROP_OLDEST:
            assert self.nowait[item] == (not self.closing)
        else:
            assert self.nowait[item] == (has_room and not has_line)

    @precondition(lambda self: any(not each.task.done() for each in self.producers))
    @rule(data=st.data())
    def cancel_a_producer(self, data: st.DataObject) -> None:
        alive = [each for each in self.producers if not each.task.done()]
        data.draw(st.sampled_from(alive), label="producer").task.cancel()

    @precondition(lambda self: self.loop.ready)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Any ready task may be next, not only the one that asyncio would take."""
        self.loop.step(data.draw(st.integers(0, self.loop.ready - 1), label="index"))

    @precondition(lambda self: self.loop.ready)
    @rule()
    def step_in_order(self) -> None:
        self.loop.step()

    @precondition(lambda self: self.at_work and not self.at_work.done())
    @rule(fails=st.booleans())
    def let_the_handler_return(self, *, fails: bool) -> None:
        assert self.at_work is not None
        if fails:
            self.at_work.set_exception(ValueError())
        else:
            self.at_work.set_result(None)

    @precondition(lambda self: not self.closing and self.numbered > 12)
    @rule()
    def begin_shutdown(self) -> None:
        self.closing = self.loop.create_task(self.queue.shutdown(None))
        self.loop.step(self.loop.ready - 1)

    @rule(counts=st.lists(st.integers(1, 3), min_size=2, max_size=6))
    def crowd(self, counts: list[int]) -> None:
        """Several come, and those that have to wait do."""
        for count in counts:
            form = "one" if count == 1 else "list"
            self.producers.append(Producer(self, count, form))
        self.loop.run_dry()

    @precondition(lambda self: self.at_work and not self.at_work.done())
    @rule(steps=st.integers(1, 6), victims=st.lists(st.integers(0, 3), max_size=2))
    def next_cycle(self, steps: int, victims: list[int]) -> None:
        """Up to a few steps into it, and there somebody of the line is cancelled."""
        assert self.at_work is not None
        self.at_work.set_result(None)
        for _ in range(min(steps, self.loop.ready)):
            self.loop.step()
        line = [producer for producer in self.producers if producer.is_in_line]
        for victim in victims:
            if victim < len(line):
                line[victim].task.cancel()

    @rule()
    def run_dry(self) -> None:
        """Nothing is ready any more: whoever waits now waits for a reason."""
        self.loop.run_dry()
        self._nobody_is_stuck()

    def _nobody_is_stuck(self) -> None:
        while self.at_work is None and self.queue.stats().waiting:
            assert self.loop.has_timer, "items wait, and nothing will take them"
            self.loop.skip_to_next_timer()
            self.loop.run_dry()
        if any(producer.is_in_line for producer in self.producers):
            stats = self.queue.stats()
            assert not self.closing, "a producer hangs across shutdown"
            assert stats.waiting == stats.capacity, "room, and yet somebody waits"

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self._finish()
        finally:
            self.loop.leave()

    def _finish(self) -> None:
        """Let everything end well, and account for each item by what was answered."""
        self.loop.run_dry()
        while self.at_work is not None or self.queue.stats().waiting:
            self._nobody_is_stuck()
            assert self.at_work is not None
            self.at_work.set_result(None)
            self.loop.run_dry()
        if self.closing is None:
            self.closing = self.loop.create_task(self.queue.shutdown(None))
        while not self.closing.done():
            self.loop.run_dry()
            if not self.closing.done():
                self.loop.skip_to_next_timer()
        assert self.closing.result() == []
        self._check_answers()

    def _check_answers(self) -> None:
        stats = check_settled(self.queue)
        received = set(self.received)
        assert len(received) == len(self.received), "something was handled twice"
        expected: set[int] = {
            item for item, accepted in self.nowait.items() if accepted
        }
        rejected = len(self.nowait) - len(expected)
        for producer in self.producers:
            assert producer.task.done()
            accepted = producer.accepted
            if accepted is None:
                # Not atomic, so some of the first ones may have got in; of one, none.
                some = received.intersection(producer.items)
                assert some == set(producer.items[: len(some)])
                assert not (producer._form == "one" and some)
                expected |= some
            else:
                expected.update(producer.items[:accepted])
                rejected += len(producer.items) - accepted
        assert stats.rejected == rejected
        if self.when_full is WhenFull.DROP_OLDEST:
            assert received <= expected
        else:
            assert received == expected
            assert stats.accepted == len(expected)

    # --- what always holds

    @invariant()
    def the_accounts_add_up(self) -> None:
        check_accounts(self.queue)

    @invariant()
    def the_bound_holds(self) -> None:
        stats = self.queue.stats()
        assert stats.waiting <= stats.capacity

    @invariant()
    def order_is_that_of_coming(self) -> None:
        assert self.received == sorted(self.received)


class DropNewestMachine(QueueMachine):
    when_full = WhenFull.DROP_NEWEST


class DropOldestMachine(QueueMachine):
    when_full = WhenFull.DROP_OLDEST


@pytest.mark.parametrize(
    "machine, number",
    [(QueueMachine, 200), (DropNewestMachine, 40), (DropOldestMachine, 40)],
)
def test_a_queue_keeps_its_promises_in_any_order_of_steps(
    machine: type[QueueMachine], number: int
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples(number), stateful_step_count=50),
    )


class HandsOver(Waiter):
    """A producer that cannot place its items by itself, as on a thread."""

    hands_over = True

    def __init__(self, items: list[int]) -> None:
        super().__init__(len(items))
        self._items = items

    def wake(self) -> None:
        pass

    def hand_over(self) -> list[int]:
        return self._items


async def test_behind_one_who_places_his_own_the_others_are_placed_at_once() -> None:
    """Not with the next take: until then a thread would wait beside its slot."""
    partition = Partition[int](0, buffer_size=2, due_size=2)
    partition.open()
    assert partition.offer([1, 2]) == 2
    first = LoopWaiter(asyncio.get_running_loop(), 1, partition)
    partition.wait_in_line(first)
    partition.wait_in_line(HandsOver([4]))
    assert partition.take(None) == [1, 2]
    assert partition.items == []
    assert partition.offer_in_turn(first, [3]) == 1
    assert partition.items == [3, 4]
