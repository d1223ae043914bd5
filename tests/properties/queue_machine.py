"""A whole queue under a scheduler's hand: its promises, after every single step.

The queue and all its tasks are real; the loop is not (`SteppedLoop`). Rules begin
things, and one lets chosen callbacks run. `Stage` looks on after every one of them.
"""

import sys
from typing import ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from batchqueue_async import PartitionPolicy
from tests.properties.gated_handler import KINDS, Failed, Item
from tests.properties.setup import IDLE, INTERVAL, Setup, setups
from tests.properties.stage import Stage

PATIENCE = 4 * INTERVAL
"""Virtual seconds in which everything must be done that nothing holds up."""

kinds = st.sampled_from(KINDS)


class QueueMachine(RuleBasedStateMachine):
    """Everything that anybody can do to a queue, in any order."""

    has_handlers: ClassVar[bool] = True
    stage: Stage

    def build(self, setup: Setup) -> Stage:
        """Return a stage with this machine's queue."""
        return Stage(setup, partitions=PartitionPolicy.adaptive(multiplier=3))

    @initialize(setup=setups, first=st.lists(kinds, max_size=3, unique=True))
    def start(self, setup: Setup, first: list[type[Item]]) -> None:
        self.stage = self.build(setup)
        if self.has_handlers:
            for kind in first:
                self.add_handler(kind, weight=1.0, again=0)

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        try:
            # A rule that failed is the finding, not what it left behind.
            if sys.exc_info()[0] is None:
                self.finish()
        finally:
            self.stage.close()

    # Producers.

    @rule(kind=kinds)
    def produce(self, kind: type[Item]) -> None:
        items = self.stage.new_items(kind)
        self.stage.produce(self.stage.queue.produce(items[0]), items)

    @rule(kind=kinds, count=st.integers(0, 5), as_list=st.booleans())
    def produce_many(self, kind: type[Item], count: int, *, as_list: bool) -> None:
        self._produce_many([kind] * count, as_list=as_list)

    @rule(of=st.lists(kinds, min_size=2, max_size=6))
    def produce_a_mixture(self, of: list[type[Item]]) -> None:
        self._produce_many(of, as_list=True)

    def _produce_many(self, of: list[type[Item]], *, as_list: bool) -> None:
        items = self.stage.new_items(*of)
        if len(set(of)) > 1 or not self.stage.ledger.by_type:
            self.stage.ledger.mixed(items)
        given = list(items) if as_list else iter(list(items))
        self.stage.produce(self.stage.queue.produce_many(given), items)

    @rule(kind=kinds)
    def produce_nowait(self, kind: type[Item]) -> None:
        (item,) = self.stage.new_items(kind)
        accepted = self.stage.queue.produce_nowait(item)
        self.stage.check()
        assert accepted == (item.number in self.stage.ledger.place)

    # The scheduler.

    @rule(choices=st.lists(st.integers(0, 7), min_size=1, max_size=12))
    def run_some(self, choices: list[int]) -> None:
        for choice in choices:
            self.stage.step(choice)

    @rule()
    def run_until_nothing_is_ready(self) -> None:
        self.stage.run_dry()
        for partition in self.stage.queue._parts.partitions:
            assert not partition.line.reserved, "a lost wake-up: nobody fills the slot"
        if self.stage.calls.is_closing:
            stuck = self.stage.calls.stuck_items
            assert not stuck, f"F1: waiting producers were not woken: {stuck}"

    @precondition(lambda self: self.stage.loop.next_timer is not None)
    @rule()
    def let_the_next_timer_fire(self) -> None:
        self.stage.loop.advance(self.stage.loop.next_timer or 0.0)

    @precondition(lambda self: not self.stage.is_held_up)
    @rule()
    def everything_flows(self) -> None:
        """D2: what waits is taken within one shortest nap, and the linger."""
        self.stage.run_dry()
        if self.stage.is_held_up:
            return
        before = [
            (partition, partition.accounts.taken_out)
            for partition in self.stage.queue._parts.partitions
            if partition.items
        ]
        linger = self.stage.setup.linger
        self.stage.pass_time(max(IDLE.shortest, linger) + 1e-5)
        at_work = (
            {call.drain_task for call in self.stage.ledger.calls} if linger else {}
        )
        for partition, taken_out in before:
            owner = self.stage.queue.stats().partitions[partition.index].owner
            was_seen = partition.accounts.taken_out > taken_out or owner in at_work
            assert was_seen, f"D2: partition {partition.index} was slept through"

    # Handlers.

    @precondition(lambda self: self.stage.ledger.calls)
    @rule(which=st.integers(0, 3), fails=st.sampled_from([False, False, True]))
    def end_a_call(self, which: int, *, fails: bool) -> None:
        calls = self.stage.ledger.calls
        calls[which % len(calls)].end(Failed() if fails else None)

    @precondition(lambda self: self.has_handlers and not self.stage.calls.is_closing)
    @rule(kind=kinds, weight=st.sampled_from([0.5, 1.0, 2.0]), again=st.integers(0, 9))
    def add_handler(self, kind: type[Item], weight: float, again: int) -> None:
        """A new handler, or one that the kind has had before."""
        former = [each for each in self.stage.handlers if each.kind is kind]
        if former and again % 2 and not former[-1].is_closed:
            handler = former[-1]
        else:
            handler = self.stage.new_handler(kind)
        before = self.stage.queue.stats().partitions
        self.stage.queue.add_handler(kind, handler, weight)
        self.stage.check()
        after = self.stage.queue.stats().partitions[: len(before)]
        owners = [each.owner for each in before], [each.owner for each in after]
        assert owners[0] == owners[1], f"E4: growth moved partitions: {owners}"

    @precondition(lambda self: self.has_handlers and not self.stage.calls.is_closing)
    @rule(kind=kinds)
    def remove_handler(self, kind: type[Item]) -> None:
        self.stage.queue.remove_handler(kind)
        self.stage.check()

    @precondition(lambda self: not self.stage.calls.is_closing)
    @rule(plan=st.lists(st.integers(0, 2), min_size=1, max_size=6))
    def rebalance(self, plan: list[int]) -> None:
        """Begin a round; it goes on when the scheduler lets it."""
        self.stage.plans.plan = plan
        self.stage.loop.advance(self.stage.loop.time() + INTERVAL)

    # Ends.

    @precondition(lambda self: self.stage.calls.under_way)
    @rule(which=st.integers(0, 9))
    def cancel(self, which: int) -> None:
        victims = self.stage.calls.under_way
        self.stage.calls.cancel(victims[which % len(victims)])
        self.stage.check()

    @rule(timeout=st.sampled_from([None, None, 0.05]))
    def flush(self, timeout: float | None) -> None:
        _ = self.stage.begin_flush(timeout)

    @precondition(lambda self: self.stage.number > 12)
    @rule(timeout=st.sampled_from([None, 30.0, 0.0]))
    def shutdown(self, timeout: float | None) -> None:
        _ = self.stage.begin_shutdown(timeout)

    def finish(self) -> None:
        """Nothing holds anything up any more: everything ends, and nothing is left."""
        stage = self.stage
        stage.open_gates()
        stage.pass_time(PATIENCE)
        stuck = stage.calls.stuck_items
        assert not stuck, f"a lost wake-up: {stuck} are waited with"
        stage.check_settled()
        owners = [each.owner for each in stage.check_stats().partitions]
        assert None not in owners, f"E4: a handoff never ends: {owners}"
        for task in stage.calls.under_way:
            stage.run_to_end(task)
        stage.run_to_end(stage.begin_shutdown(None))
        stage.ledger.check_ended(stage.check_stats())
        stage.check_nothing_survives()
