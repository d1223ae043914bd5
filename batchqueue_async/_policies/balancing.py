"""Which drain task should own which partition, given what came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

from batchqueue_async._validation import refuse, require_at_least, require_positive

from .value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

Measure: TypeAlias = Literal["items", "seconds"]

# Sums of the same loads in another order differ by less than this fraction.
_DRIFT = 1e-9


class DrainBalancer(Protocol):
    """Plans who owns which partition: a pure function of plain values.

    It may have an attribute `measure`, "items" (the default) or "seconds": whether a
    partition's load is the items that were offered to it since the last round or the
    time that handlers spent on them.
    """

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> Sequence[int] | None:
        """Return the new owner of each partition, or None to leave all as they are.

        Args:
            loads: The load of each partition since the last round.
            owners: The drain task that owns each partition.
            drain_tasks: How many there are: owners are 0 to `drain_tasks` - 1.
        """


class _EvensOut(Value):
    """What both balancers do, each with its own measure."""

    __slots__ = ()

    skip_below: float

    def __post_init__(self) -> None:
        require_at_least("skip_below", self.skip_below, 1)

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> list[int] | None:
        """Return the new owner of each partition, or None if it isn't worth it."""
        now = load_sums(loads, owners, drain_tasks)
        most, least = max(now), min(now)
        if most == 0 or (least > 0 and most / least < self.skip_below):
            return None
        # Imported late: few programs rebalance, and `Rebalancer` imports it first.
        from .lpt import lpt_plan  # noqa: PLC0415

        plan = lpt_plan(loads, owners, drain_tasks)
        planned = max(load_sums(loads, plan, drain_tasks))
        return plan if planned < most * (1 - _DRIFT) else None


class ThroughputBalancer(_EvensOut):
    """Evens out the number of items: right when all items cost about the same.

    Longest processing time first (see `lpt`). It leaves all as it is while the most
    loaded drain task has less than `skip_below` times the load of the least loaded
    one, and when it finds no plan that lowers the largest load. Partitions without
    load stay, and of equally good plans it takes one with the fewest moves.
    """

    measure: ClassVar[Measure] = "items"
    skip_below: float = 1.15


class CostBalancer(_EvensOut):
    """Evens out the time spent in handlers: right when costs per item differ.

    It plans in the same way as `ThroughputBalancer`.
    """

    measure: ClassVar[Measure] = "seconds"
    skip_below: float = 1.15


class Rebalancing(Value):
    """How often, and by which plan, partitions change their drain task.

    Attributes:
        balancer: Plans each round.
        interval: Seconds between rounds.
    """

    balancer: DrainBalancer = ThroughputBalancer()
    interval: float = 10.0

    def __post_init__(self) -> None:
        if isinstance(self.balancer, type) or not callable(
            getattr(self.balancer, "assign", None)
        ):
            rule = "an object with an assign method"
            refuse("balancer", rule, self.balancer, TypeError)
        if self.measure not in ("items", "seconds"):
            refuse("balancer.measure", '"items" or "seconds"', self.measure)
        require_positive("interval", self.interval)

    @property
    def measure(self) -> Measure:
        """What the balancer asks to be weighed: items, or the time of handlers."""
        measure: Measure = getattr(self.balancer, "measure", "items")
        return measure


def load_sums(
    loads: Sequence[float], owners: Sequence[int], drain_tasks: int
) -> list[float]:
    sums = [0.0] * drain_tasks
    for load, owner in zip(loads, owners, strict=True):
        sums[owner] += load
    return sums
