"""Partitions that count what comes in by themselves (`audit=True`).

Without it, what was accepted is what left the buffer and what is in it: an item that is
lost in there is missing from both sides. Here it is missing from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from batchqueue_async._engine.partitions.drop_oldest_partition import RollingPartition
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.sized_partition import (
    SizedPartition,
    SizedRollingPartition,
)

T = TypeVar("T")


class AuditedPartition(Partition[T]):
    """It has no hot path: whatever comes in passes `_append`, which counts it."""

    entered = 0

    def abandon(self) -> None:
        super().abandon()
        self.entered = 0

    def take_back(self, position: int) -> None:
        self.entered -= 1
        super().take_back(position)

    def _append(self, chunk: Sequence[T]) -> None:
        before, more = len(self.items), len(chunk)
        try:
            super()._append(chunk)
        except BaseException:
            # Whatever struck: what is in came in.
            more = len(self.items) - before
            raise
        finally:
            self.entered += more

    def _set_limits(self) -> None:
        super()._set_limits()
        self.has_fast_path = False
        self.limit = self.guarded_limit = 0


class AuditedRollingPartition(AuditedPartition[T], RollingPartition[T]):
    """The same for one that displaces its oldest items."""

    def _drop(self, waiting: int, passed: int) -> None:
        super()._drop(waiting, passed)
        self.entered += passed


class AuditedSizedPartition(AuditedPartition[T], SizedPartition[T]):
    """Counts in sizes, too: neither has the hot path."""


class AuditedSizedRollingPartition(
    AuditedRollingPartition[T], SizedRollingPartition[T]
):
    """All three at once."""
