"""The kinds of queues that the machine drives, each with its own focus."""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis.stateful import precondition, rule

from batchqueue_async import (
    DrainTaskPolicy,
    PartialFailure,
    PartitionPolicy,
    Retry,
    SharedDrainTasks,
    WhenFull,
)
from tests.properties.gated_handler import Item
from tests.properties.queue_machine import QueueMachine
from tests.properties.setup import Setup
from tests.properties.stage import Stage


class GrowingMachine(QueueMachine):
    """Partitions come with handlers, and each type has one of its own."""


class CrowdedMachine(QueueMachine):
    """Fewer partitions than types, so several handlers share one."""

    def build(self, setup: Setup) -> Stage:
        return Stage(setup, partitions=PartitionPolicy.fixed(2))


class SelectorMachine(QueueMachine):
    """Any item may be in any partition, so handlers are entered from several."""

    def build(self, setup: Setup) -> Stage:
        def by_number(item: Item, partitions: int) -> int:
            return item.number // 2 % partitions

        return Stage(
            setup,
            by_type=False,
            partitions=PartitionPolicy.fixed(3),
            selector=by_number,
        )


class ConsumerMachine(QueueMachine):
    """One handler for everything, from several drain tasks."""

    has_handlers = False

    def build(self, setup: Setup) -> Stage:
        return Stage(setup, has_consumer=True, partitions=PartitionPolicy.fixed(3))


class RetryingMachine(QueueMachine):
    """One handler for two partitions: its batches are cut across both, and fail."""

    has_handlers = False

    def build(self, setup: Setup) -> Stage:
        cut = replace(
            setup,
            drain_tasks=1,
            buffer_size=4,
            max_batch=2 + (setup.max_batch or 0) % 2,
            retry=Retry(attempts=3, wait_initial=0.01),
            timeout=None,
        )
        return Stage(cut, has_consumer=True, partitions=PartitionPolicy.fixed(2))

    @precondition(lambda self: self.stage.ledger.calls)
    @rule(which=st.integers(0, 3), fails=st.booleans())
    def end_a_call(self, which: int, *, fails: bool) -> None:
        super().end_a_call(which, fails=fails)


class PartialMachine(QueueMachine):
    """Handlers that tell which items failed, of batches from several partitions."""

    has_handlers = False

    def build(self, setup: Setup) -> Stage:
        often = replace(
            setup,
            buffer_size=4,
            retry=replace(setup.retry, attempts=3, wait_initial=0.01),
        )
        return Stage(often, has_consumer=True, partitions=PartitionPolicy.fixed(3))

    @precondition(lambda self: self.stage.ledger.calls)
    @rule(which=st.integers(0, 3), failed=st.sets(st.integers(0, 5)))
    def answer_in_part(self, which: int, failed: set[int]) -> None:
        calls = self.stage.ledger.calls
        call = calls[which % len(calls)]
        call.end(PartialFailure(failed & set(range(len(call.batch)))))


class SharedMachine(QueueMachine):
    """A drain task that must have a permit for each of its cycles."""

    def build(self, setup: Setup) -> Stage:
        shared = SharedDrainTasks("io", DrainTaskPolicy.fixed(1))
        return Stage(setup, partitions=PartitionPolicy.fixed(3), drain_tasks=shared)


class DropNewestMachine(QueueMachine):
    """Nobody waits: what does not fit is refused."""

    def build(self, setup: Setup) -> Stage:
        partitions = PartitionPolicy.adaptive(multiplier=3)
        return Stage(setup, when_full=WhenFull.DROP_NEWEST, partitions=partitions)


class DropOldestMachine(QueueMachine):
    """Nobody waits: what does not fit displaces."""

    def build(self, setup: Setup) -> Stage:
        # No call brings more than a partition holds, so each item is seen once.
        roomy = replace(setup, buffer_size=setup.buffer_size + 5)
        partitions = PartitionPolicy.adaptive(multiplier=3)
        return Stage(roomy, when_full=WhenFull.DROP_OLDEST, partitions=partitions)


class CancellingMachine(QueueMachine):
    """Handlers that end with the cancellation of the drain task they run in."""

    def build(self, setup: Setup) -> Stage:
        few = replace(setup, buffer_size=4, max_batch=2, timeout=None)
        return Stage(few, partitions=PartitionPolicy.fixed(2))

    @precondition(lambda self: self.stage.ledger.calls)
    @rule(which=st.integers(0, 3), fails=st.booleans())
    def end_a_call(self, which: int, *, fails: bool) -> None:
        calls = self.stage.ledger.calls
        call = calls[which % len(calls)]
        call.cancels_itself = fails and not call.gate.done()
        call.end()


MACHINES: tuple[type[QueueMachine], ...] = (
    GrowingMachine,
    CrowdedMachine,
    SelectorMachine,
    ConsumerMachine,
    RetryingMachine,
    PartialMachine,
    SharedMachine,
    DropNewestMachine,
    DropOldestMachine,
)
"""Those that find nothing."""
