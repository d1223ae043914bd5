"""Queues that count in the sizes of items, under the same scheduler's hand."""

from dataclasses import replace
from typing import Any

from batchqueue_async import PartitionPolicy, Retry, WhenFull
from tests.properties.gated_handler import Item
from tests.properties.machines import PartialMachine
from tests.properties.promises import check_sizes, size_of
from tests.properties.queue_machine import QueueMachine
from tests.properties.setup import Setup
from tests.properties.stage import Stage


class SizedStage(Stage):
    """Looks at rooms and batches, too."""

    def __init__(self, setup: Setup, **settings: Any) -> None:  # noqa: ANN401
        sizes = {"size_of": size_of, "buffer_bytes": 7, "max_batch_bytes": 5}
        super().__init__(setup, **{**sizes, **settings})

    def check(self) -> None:
        parts = self.queue._parts
        if parts.byte_budget is not None and not self.calls.is_closing:
            check_sizes(parts.byte_budget, parts.partitions)
        bound = self.queue.config.max_batch_bytes
        for call in self.ledger.calls:
            size = sum(map(size_of, call.batch))
            fits = bound is None or size <= bound or len(call.batch) == 1
            assert fits, f"C5: a batch of {size}"
        super().check()

    def check_settled(self) -> None:
        super().check_settled()
        stats = self.check_stats()
        assert (stats.waiting_bytes, stats.in_flight_bytes) == (0, 0), "C5: left"


class SizedMachine(QueueMachine):
    """Partitions come with handlers; their room is one."""

    def build(self, setup: Setup) -> Stage:
        return SizedStage(setup, partitions=PartitionPolicy.adaptive(multiplier=3))


class SmallBatchesMachine(QueueMachine):
    """Several handlers in a partition; only batches are bounded by size."""

    def build(self, setup: Setup) -> Stage:
        partitions = PartitionPolicy.fixed(2)
        return SizedStage(
            setup, partitions=partitions, buffer_bytes=None, max_batch_bytes=3
        )


class SizedSelectorMachine(QueueMachine):
    """Any item in any partition, and batches without a bound."""

    def build(self, setup: Setup) -> Stage:
        def by_number(item: Item, partitions: int) -> int:
            return item.number // 2 % partitions

        return SizedStage(
            setup,
            by_type=False,
            partitions=PartitionPolicy.fixed(3),
            selector=by_number,
            max_batch_bytes=None,
        )


class SizedRetryingMachine(PartialMachine):
    """Batches across partitions that fail, in part or as a whole."""

    def build(self, setup: Setup) -> Stage:
        often = replace(
            setup,
            buffer_size=4,
            retry=Retry(attempts=3, wait_initial=0.01, split=True),
            timeout=None,
        )
        return SizedStage(often, has_consumer=True, partitions=PartitionPolicy.fixed(3))


class SizedDropNewestMachine(QueueMachine):
    """Nobody waits: what does not fit is refused."""

    def build(self, setup: Setup) -> Stage:
        partitions = PartitionPolicy.adaptive(multiplier=3)
        return SizedStage(setup, when_full=WhenFull.DROP_NEWEST, partitions=partitions)


class SizedDropOldestMachine(QueueMachine):
    """Nobody waits: what does not fit displaces."""

    def build(self, setup: Setup) -> Stage:
        # No call brings more than there is room for, so each item is seen once.
        roomy = replace(setup, buffer_size=setup.buffer_size + 5)
        return SizedStage(
            roomy,
            when_full=WhenFull.DROP_OLDEST,
            partitions=PartitionPolicy.fixed(1),
            buffer_bytes=30,
            max_batch_bytes=30,
        )


SIZED_MACHINES: tuple[type[QueueMachine], ...] = (
    SizedMachine,
    SmallBatchesMachine,
    SizedSelectorMachine,
    SizedRetryingMachine,
    SizedDropNewestMachine,
    SizedDropOldestMachine,
)
"""Those that find nothing."""
