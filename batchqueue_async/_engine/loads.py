"""What each partition was asked to carry since the last round.

Derived from totals that are kept anyway, so producing costs nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchqueue_async._engine.partition import Partition
from batchqueue_async._policies.balancing import Measure


@dataclass(slots=True, eq=False, repr=False)
class _Totals:
    """One partition's totals at one moment."""

    offered: int
    settled: int
    seconds: float

    def since(self, base: _Totals) -> _Totals:
        return _Totals(
            self.offered - base.offered,
            self.settled - base.settled,
            self.seconds - base.seconds,
        )


_NOTHING = _Totals(0, 0, 0.0)


class Loads:
    """Demand, by partition: offered items, or the handler time that they ask for.

    Demand, not what was done: under full load a drain task does no more than it can,
    however much too much its partitions are asked to carry.
    """

    __slots__ = (
        "_bases",
        "_in_seconds",
        "_partitions",
    )

    def __init__(self, partitions: Sequence[Partition[Any]], measure: Measure) -> None:
        self._partitions = partitions
        self._in_seconds = measure == "seconds"
        self._bases: list[_Totals] = []

    def now(self) -> list[float]:
        """Return the loads since the last `reset`."""
        totals = self._totals()
        # Partitions that are new since then started at zero.
        bases = self._bases + [_NOTHING] * (len(totals) - len(self._bases))
        return [
            self._load(total.since(base), total)
            for total, base in zip(totals, bases, strict=True)
        ]

    def reset(self) -> None:
        """Begin a new round."""
        self._bases = self._totals()

    def _load(self, recent: _Totals, ever: _Totals) -> float:
        if not self._in_seconds:
            return float(recent.offered)
        # What an item costs, lately if that is known.
        known = recent if recent.settled else ever
        if not known.settled:
            return recent.seconds
        # Or what was spent on items that came earlier.
        return max(recent.seconds, recent.offered * known.seconds / known.settled)

    def _totals(self) -> list[_Totals]:
        return [
            _Totals(
                partition.accepted + partition.accounts.rejected,
                partition.accounts.settled,
                partition.busy,
            )
            for partition in self._partitions
        ]
