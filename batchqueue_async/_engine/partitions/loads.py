"""What each partition was asked to carry since the last round of rebalancing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._policies.balancing import Rebalancing


# One partition's totals at one moment: offered, settled, seconds. A plain tuple, since
# there may be tens of thousands of partitions.
_Totals = tuple[int, int, float]


_NOTHING: _Totals = (0, 0, 0.0)


class Loads:
    """Demand, by partition: offered items, or the handler time that they ask for.

    Derived from totals that are kept anyway, so producing costs nothing more.

    Demand, and not the work that was done: under full load a drain task does no more
    than it can, however much more its partitions are asked to carry.
    """

    __slots__ = (
        "_bases",
        "_partitions",
        "in_seconds",
    )

    def __init__(
        self, partitions: Sequence[Partition[Any]], rebalancing: Rebalancing | None
    ) -> None:
        self._partitions = partitions
        self.in_seconds = rebalancing is not None and rebalancing.measure == "seconds"
        self._bases: Sequence[_Totals] = ()

    def now(self) -> list[float]:
        totals = self._totals()
        # Partitions that were added since the last round started at zero.
        bases = [*self._bases, *[_NOTHING] * (len(totals) - len(self._bases))]
        pairs = zip(totals, bases, strict=True)
        if not self.in_seconds:
            return [float(ever[0] - base[0]) for ever, base in pairs]
        return [_seconds_asked_for(ever, base) for ever, base in pairs]

    def reset(self) -> None:
        self._bases = self._totals()

    def _totals(self) -> list[_Totals]:
        return [
            (
                (accounts := partition.accounts).taken_out
                + len(partition.items)
                + accounts.rejected,
                accounts.handled + accounts.failed,
                accounts.busy,
            )
            for partition in self._partitions
        ]


def _seconds_asked_for(ever: _Totals, base: _Totals) -> float:
    offered, settled, seconds = (
        now - then for now, then in zip(ever, base, strict=True)
    )
    # The cost of an item: that of this round if any was settled, else of all time.
    known_settled, known_seconds = (settled, seconds) if settled else ever[1:]
    if not known_settled:
        return seconds
    # At least what was spent, which may be for items that came earlier.
    return max(seconds, offered * known_seconds / known_settled)
