"""A sink that is away for a while, and what no setting can do about it."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from batchqueue_async.simulation._plan import Level
from batchqueue_async.simulation._result import Simulation
from batchqueue_async.simulation._simulate import HandlerCost

_QUANTILES: Final = 100_000


def with_outage(cost: HandlerCost, begins: float, seconds: float) -> HandlerCost:
    """Return a cost that raises OSError from `begins` on, for so many seconds."""
    if not seconds:
        return cost

    def failing(batch: list[Any]) -> float:
        if begins <= asyncio.get_running_loop().time() < begins + seconds:
            message = "the sink is down"
            raise OSError(message)
        return cost(batch)

    return failing


def with_rare_outage(usual: Simulation, worst: Simulation, share: float) -> Simulation:
    """Return the worst, with ages of a longer time: of it only a share is like that."""
    rare = max(1, round(_QUANTILES * share))
    ages = [*_quantiles(worst.ages, rare), *_quantiles(usual.ages, _QUANTILES - rare)]
    return replace(worst, ages=array("d", sorted(ages)))


def _quantiles(ages: Sequence[float], count: int) -> list[float]:
    if not ages:
        return []
    return [ages[int((place + 0.5) / count * len(ages))] for place in range(count)]


def reason_of_impossible(
    level: Level, least: float, at_best: Simulation, outage: float, share: float
) -> str | None:
    """Return why no setting can hold a level, in words; None if one may."""
    if level.p99 is not None and least > level.p99:
        return f"no setting can: a call for one item takes {least:.3g} s"
    missed = level.misses(at_best) if outage else []
    if not missed:
        return None
    says = (
        f"no setting can: with a sink that is away for {outage:g} s and else takes no "
        f"time at all, this is missed: {', '.join(missed)}"
    )
    if share == 1.0 and level.p99 is not None and at_best.p99 > level.p99:
        says += (
            "\np99 is of what was tried; if the outage is rarer, say how rare, such as "
            "--outage-every 86400 for once a day"
        )
    return says
