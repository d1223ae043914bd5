"""What each partition was asked to carry since the last round.

Derived from totals that are kept anyway, so producing costs nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchqueue_async._engine.partition import Partition
from batchqueue_async._policies.balancing import Measure


class Loads:
    """Demand (accepted and rejected items) or handler time, by partition."""

    def __init__(self, partitions: Sequence[Partition[Any]], measure: Measure) -> None:
        self._partitions = partitions
        self._measure = measure
        self._bases: list[float] = []

    def now(self) -> list[float]:
        """Return the loads since the last `reset`."""
        totals = self._totals()
        # Partitions that are new since then started at zero.
        bases = self._bases + [0.0] * (len(totals) - len(self._bases))
        return [total - base for total, base in zip(totals, bases, strict=True)]

    def reset(self) -> None:
        """Begin a new round."""
        self._bases = self._totals()

    def _totals(self) -> list[float]:
        if self._measure == "seconds":
            return [partition.busy for partition in self._partitions]
        return [
            float(partition.accepted + partition.accounts.rejected)
            for partition in self._partitions
        ]
