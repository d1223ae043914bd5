"""Compares what is in the table with what Spark's checkpoint says must be there."""

from collections import Counter
from dataclasses import dataclass

from tests.spark.chaos.checkpoint import Checkpoint
from tests.spark.chaos.database import Database


@dataclass(frozen=True)
class Finding:
    """What is in the table, and what is wrong with it."""

    rows: int
    lost: int
    doubled: int
    foreign: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether everything is there, once, and nothing else."""
        return not (self.lost or self.doubled or self.foreign)


def look(checkpoint: Checkpoint, database: Database, table: str) -> Finding:
    """Check the table while the query goes on writing to it."""
    # In this order: what is committed by now shows in the table that is read next.
    committed = checkpoint.committed()
    return compare(checkpoint, committed, database.ids(table))


def compare(checkpoint: Checkpoint, committed: int, ids: list[int]) -> Finding:
    """Check ids that were read when Spark had committed the batches up to this one.

    All of each committed batch must be there. All of a later one may be, but never a
    part of it: a batch that shows is a batch that shows wholly. That is stricter than
    to compare after the end.
    """
    found = Counter(ids)
    expected = checkpoint.ids(committed)
    # Every batch that shows was planned before.
    for batch in range(committed + 1, checkpoint.planned() + 1):
        later = checkpoint.ids(batch)
        if found.keys() & (later - expected):
            expected = later
    return Finding(
        rows=found.total(),
        lost=len(expected - found.keys()),
        doubled=found.total() - len(found),
        foreign=len(found.keys() - expected),
    )
