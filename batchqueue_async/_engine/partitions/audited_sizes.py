"""Partitions that count in sizes, and what comes in by itself (`audit=True`)."""

from __future__ import annotations

from typing import TypeVar

from batchqueue_async._engine.partitions.audited_partition import (
    AuditedPartition,
    AuditedRollingPartition,
)
from batchqueue_async._engine.partitions.sized_partition import (
    SizedPartition,
    SizedRollingPartition,
)

T = TypeVar("T")


class AuditedSizedPartition(AuditedPartition[T], SizedPartition[T]):
    """Both at once: neither has the hot path."""


class AuditedSizedRollingPartition(
    AuditedRollingPartition[T], SizedRollingPartition[T]
):
    """The same for one that displaces its oldest items."""
