"""What came of a frame that executors handled, partition by partition."""

from __future__ import annotations

from dataclasses import dataclass

from batchqueue_async import DeliveryError, Failure


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What came of one partition, told by the attempt that Spark accepted.

    Attributes:
        partition: Its number.
        rows: How many rows it had.
        items: How many items the queue accepted.
        failed: How many of them ended other than handled.
        failures: The first of those, as texts; fewer than `failed` if there are many.
    """

    partition: int
    rows: int
    items: int
    failed: int = 0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What came of all partitions.

    Attributes:
        partitions: One result per partition, by number.
    """

    partitions: tuple[PartitionResult, ...]

    @property
    def rows(self) -> int:
        """How many rows there were."""
        return sum(each.rows for each in self.partitions)

    @property
    def items(self) -> int:
        """How many items were accepted."""
        return sum(each.items for each in self.partitions)

    @property
    def failed(self) -> int:
        """How many items ended other than handled."""
        return sum(each.failed for each in self.partitions)


class PartitionsFailed(DeliveryError):
    """Items ended other than handled on executors; the other items were handled.

    Attributes:
        result: Everything that is known, the partitions that went well included.
    """

    def __init__(self, queue_name: str, result: WriteResult) -> None:
        told = tuple(
            Failure(f"partition {each.partition}: {text}", None, "failed")
            for each in result.partitions
            for text in each.failures
        )
        super().__init__(queue_name, result.failed, told)
        self.result = result
        self._first = next((str(each.item) for each in told), None)
        # What pickle calls the class with.
        self.args: tuple[object, ...] = (queue_name, result)

    def __str__(self) -> str:
        # Not the failures' own texts: those know of items, and here they are texts.
        noun = "failure" if self.count == 1 else "failures"
        first = f"; first: {self._first}" if self._first else ""
        return f"{self.count} {noun} in queue {self.queue_name!r}{first}"
