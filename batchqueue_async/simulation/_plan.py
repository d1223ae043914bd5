"""The cheapest of many settings that holds a service level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from batchqueue_async import BatchQueueConfig, DrainTaskPolicy, PartitionPolicy
from batchqueue_async._functions import require_arguments
from batchqueue_async._validation import (
    refuse,
    require_at_least,
    require_instance,
    require_iterable,
)
from batchqueue_async.simulation._simulate import (
    Arrivals,
    HandlerCost,
    Simulation,
    simulate,
)

DRAIN_TASKS = (1, 2, 4, 8, 16, 32)
BATCHES = (50, 200, 1_000, 5_000)
LINGERS = (0.0, 0.1, 1.0)
"""The defaults that are tried, from cheap to dear."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A service level.

    Attributes:
        p99: Seconds that 99 of 100 items are handled within; None for any.
        may_lose: Whether items may be refused, displaced, fail, or be left at the end.
        waiting: How many items may wait at the same time, those of waiting producers
            with them: memory by the size of an item. None for any.
    """

    p99: float | None = None
    may_lose: bool = False
    waiting: int | None = None

    def __post_init__(self) -> None:
        if self.p99 is not None:
            require_at_least("p99", self.p99, 0)
        if self.waiting is not None:
            require_at_least("waiting", self.waiting, 1)
        require_instance("may_lose", self.may_lose, bool, "True or False")

    def misses(self, simulation: Simulation) -> list[str]:
        """Return what is not held, in words."""
        missed = []
        if self.p99 is not None and simulation.p99 > self.p99:
            missed.append(f"p99 {simulation.p99:.3g} s")
        if not self.may_lose and simulation.lost + simulation.failed:
            missed.append(f"{simulation.lost + simulation.failed:,} items lost")
        waiting = simulation.peak_waiting + simulation.peak_producers
        if self.waiting is not None and waiting > self.waiting:
            missed.append(f"{waiting:,} waiting")
        return missed


@dataclass(frozen=True)
class Trial:
    """One setting, and what came of it."""

    config: BatchQueueConfig[Any]
    simulation: Simulation
    misses: list[str]


@dataclass(frozen=True)
class Plan:
    """What was tried, in that order; the last one holds the level, if any does."""

    trials: Sequence[Trial]

    @property
    def best(self) -> Trial | None:
        """The cheapest that holds; None if none does."""
        last = self.trials[-1]
        return None if last.misses else last


def plan(
    config: BatchQueueConfig[Any],
    arrivals: Callable[[], Arrivals],
    handler_cost: HandlerCost,
    level: Level,
    *,
    candidates: Iterable[BatchQueueConfig[Any]] | None = None,
) -> Plan:
    """Return the first setting, from cheap to dear, that holds a service level.

    Cheap is, in this order: few drain tasks (each is a connection of the sink's), a
    short linger, small batches.

    Args:
        config: What all trials have in common.
        arrivals: Makes the load anew for each trial, the same each time.
        handler_cost: Seconds of a handler's call for a batch.
        level: What has to be held.
        candidates: What is tried instead, in this order.

    Raises:
        ValueError: There are no candidates; or see `simulate`.
        TypeError: An argument is of the wrong kind.
    """
    require_instance("level", level, Level, "a Level, as in Level(p99=5.0)")
    told = "no argument: it makes the load anew for each trial"
    require_arguments("arrivals", arrivals, 0, told)
    if candidates is None:
        require_instance("config", config, BatchQueueConfig, "a BatchQueueConfig")
    else:
        rule = "an iterable of BatchQueueConfig, or None"
        require_iterable("candidates", candidates, rule)
    chosen = list(candidates_of(config) if candidates is None else candidates)
    if not chosen:
        refuse("candidates", "at least one", chosen)
    return Plan(
        list(
            tried(chosen, lambda each: simulate(each, arrivals(), handler_cost), level)
        )
    )


def tried(
    candidates: Iterable[BatchQueueConfig[Any]],
    simulated: Callable[[BatchQueueConfig[Any]], Simulation],
    level: Level,
) -> Iterator[Trial]:
    """Try one after the other; the first one that holds is the last."""
    for candidate in candidates:
        simulation = simulated(candidate)
        trial = Trial(candidate, simulation, level.misses(simulation))
        yield trial
        if not trial.misses:
            return


def candidates_of(
    config: BatchQueueConfig[Any], batches: Sequence[int] = BATCHES
) -> Iterable[BatchQueueConfig[Any]]:
    for drain_tasks in DRAIN_TASKS:
        for linger in LINGERS:
            for max_batch in batches:
                yield replace(
                    config,
                    drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
                    partitions=PartitionPolicy.per_drain_task(2),
                    linger=linger,
                    max_batch=max_batch,
                )
