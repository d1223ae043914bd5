"""The kinds of queues that the machine drives, each with its own focus."""

from dataclasses import replace

from batchqueue_async import DrainTaskPolicy, PartitionPolicy, SharedDrainTasks, WhenFull
from tests.properties.gated_handler import Item
from tests.properties.queue_machine import QueueMachine
from tests.properties.stage import Setup, Stage


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


MACHINES: tuple[type[QueueMachine], ...] = (
    GrowingMachine,
    CrowdedMachine,
    SelectorMachine,
    ConsumerMachine,
    SharedMachine,
    DropNewestMachine,
    DropOldestMachine,
)
