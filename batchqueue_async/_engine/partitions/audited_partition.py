"""Partitions that count arriving items independently (`audit=True`).

Without it, the accepted items are computed: those that left the buffer, and those in
it. An item that is lost in there would be missing from that sum, too, and not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from batchqueue_async._engine.partitions.partition import Partition

T = TypeVar("T")


class AuditedPartition(Partition[T]):
    """It has no hot path: whatever comes in passes `_append`, which counts it."""

    entered = 0

    def abandon(self) -> None:
        super().abandon()
        self.entered = 0

    def _append(self, chunk: Sequence[T]) -> None:
        before, more = len(self.items), len(chunk)
        try:
            super()._append(chunk)
        except BaseException:
            # Whatever has been raised, the items that are in came in.
            more = len(self.items) - before
            raise
        finally:
            self.entered += more

    def _set_limits(self) -> None:
        # Not those of `super` first: what came in before they are 0 was not counted.
        self.has_fast_path = False
        self.limit = self.guarded_limit = 0

    def _drop(self, waiting: int, passed: int) -> None:
        """Drop, and count the items as entered that were displaced at once."""
        super()._drop(waiting, passed)  # type: ignore[misc]
        self.entered += passed


@cache
def audited(kind: type[Partition[T]]) -> type[Partition[T]]:
    """Return the same kind of partition, which counts what comes in."""
    return type(f"Audited{kind.__name__}", (AuditedPartition, kind), {})
