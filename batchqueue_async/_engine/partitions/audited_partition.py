"""Partitions that count what comes in by themselves (`audit=True`).

Without it, what was accepted is what left the buffer and what is in it: an item that is
lost in there is missing from both sides. Here it is missing from one.
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
            # Whatever struck: what is in came in.
            more = len(self.items) - before
            raise
        finally:
            self.entered += more

    def _set_limits(self) -> None:
        try:
            super()._set_limits()
        finally:
            self.has_fast_path = False
            self.limit = self.guarded_limit = 0

    def _drop(self, waiting: int, passed: int) -> None:
        """As in the kinds that displace their oldest items."""
        super()._drop(waiting, passed)  # type: ignore[misc]
        self.entered += passed


@cache
def audited(kind: type[Partition[T]]) -> type[Partition[T]]:
    """Return the same kind of partition, which counts what comes in."""
    return type(f"Audited{kind.__name__}", (AuditedPartition, kind), {})
