"""`batchqueue plan`: a load in a few words, and the setting that carries it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import random
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import merge
from math import isfinite
from pathlib import Path
from typing import Any, Final

from batchqueue_async import BatchQueueConfig, Retry, round_robin
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._validation import refuse
from batchqueue_async.simulation._cost import Cost, Sample
from batchqueue_async.simulation._plan import (
    BATCHES,
    Level,
    Trial,
    candidates_of,
    tried,
)
from batchqueue_async.simulation._simulate import HandlerCost, Simulation, simulate

_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SEED: Final = 20
_QUANTILES: Final = 100_000
# Items of one trial. There are dozens of trials, and a million items take seconds.
_MOST_ITEMS: Final = 20_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_load(parser)
    add = parser.add_argument
    add("--call", type=_seconds, help="seconds of a call, whatever it has")
    add("--item", type=_seconds, default=0.0, help="seconds more for each of its items")
    add(
        "--calls",
        type=Path,
        help="a CSV file instead: items and seconds of each call that was measured",
    )
    add("--max-batch", type=_count, help="items that a call takes at most")
    add(
        "--outage", type=_seconds, default=0.0, help="seconds that the sink is down for"
    )
    add(
        "--outage-every",
        type=_seconds,
        help="seconds from one outage to the next, 86400 for a day: p99 is of all that "
        "time; default: of what is tried",
    )
    add("--p99", type=_seconds, help="seconds within which 99 of 100 are handled")
    add("--memory", type=_bytes, help="for all that waits, as in 512MiB")
    add("--item-bytes", type=_bytes, default=1_000, help="of one item in memory")
    add("--may-lose", action="store_true", help="items may be refused, or fail")


def _add_load(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--rate", type=_seconds, default=100.0, help="items per second, at random")
    add(
        "--seconds",
        type=_seconds,
        help="how long they come; default: 60, or three outages if that is more",
    )
    add("--burst", type=_items, default=0, help="items more, in the middle")
    add(
        "--burst-seconds",
        type=_seconds,
        default=0.0,
        help="seconds that the burst takes to come, instead of at once",
    )
    add("--load", type=Path, help="a CSV file instead: one column, when each item came")


def run(chosen: argparse.Namespace) -> int:
    """Print the plan; returns the exit status: 1 if nothing holds the level."""
    level = Level(p99=chosen.p99, may_lose=chosen.may_lose, waiting=_room(chosen))
    times = _recorded(chosen.load) if chosen.load else None
    if times is not None:
        chosen.seconds = times[-1]
    else:
        if chosen.seconds is None:
            chosen.seconds = max(60.0, 3 * chosen.outage)
        _require_feasible(chosen)
    return _plan(chosen, level, times)


def _require_feasible(chosen: argparse.Namespace) -> None:
    """Refuse a load that would take hours to simulate: likely a typing error."""
    items = chosen.rate * chosen.seconds + chosen.burst
    if items > _MOST_ITEMS:
        msg = (
            f"--rate times --seconds, and --burst, must be {_MOST_ITEMS:,} items at "
            f"most, got {items:.3g} in {chosen.seconds:g} s; --seconds may be less"
        )
        raise BatchQueueError(msg)


def _room(chosen: argparse.Namespace) -> int | None:
    """Return how many items may wait, if the memory for them is bounded."""
    if chosen.memory is None:
        return None
    if chosen.memory < chosen.item_bytes:
        msg = (
            f"--memory must have room for one item of {chosen.item_bytes} bytes "
            f"(--item-bytes), got {chosen.memory} bytes"
        )
        raise BatchQueueError(msg)
    room: int = chosen.memory // chosen.item_bytes
    return room


def _plan(chosen: argparse.Namespace, level: Level, times: list[float] | None) -> int:
    cost = _cost(chosen)
    share = 1.0
    if chosen.outage_every and chosen.outage:
        share = min(1.0, chosen.seconds / chosen.outage_every)

    def seen(config: BatchQueueConfig[Any], cost: HandlerCost = cost) -> Simulation:
        failing = _with_outage(cost, chosen.seconds / 3, chosen.outage)
        worst = simulate(config, _load(chosen, times), failing)
        if share == 1.0:
            return worst
        usual = simulate(config, _load(chosen, times), cost)
        return _with_rare_outage(usual, worst, share)

    candidates = candidates_of(_config(level), _batches(chosen.max_batch))
    say(_HEAD)
    for number, trial in enumerate(tried(candidates, seen, level)):
        say(_row(trial))
        if not trial.misses:
            say(_as_code(trial))
            return 0
        if number == 0:
            # With the best sink, which takes no time except in the outage.
            at_best = seen(trial.config, lambda _: 0.0)
            if why := _reason_of_impossible(chosen, level, at_best, share):
                say(why)
                return 1
    say("none of these holds it")
    return 1


def _with_outage(cost: HandlerCost, begins: float, seconds: float) -> HandlerCost:
    """Return a cost that raises OSError from `begins` on, for so many seconds."""

    def failing(batch: list[Any]) -> float:
        if begins <= asyncio.get_running_loop().time() < begins + seconds:
            message = "the sink is down"
            raise OSError(message)
        return cost(batch)

    return failing


def _with_rare_outage(usual: Simulation, worst: Simulation, share: float) -> Simulation:
    """Return `worst` with the ages of a longer time, of which it is only a `share`."""
    rare = max(1, round(_QUANTILES * share))
    ages = [*_quantiles(worst.ages, rare), *_quantiles(usual.ages, _QUANTILES - rare)]
    return replace(worst, ages=array("d", sorted(ages)))


def _quantiles(ages: Sequence[float], count: int) -> list[float]:
    if not ages:
        return []
    return [ages[int((place + 0.5) / count * len(ages))] for place in range(count)]


def _reason_of_impossible(
    chosen: argparse.Namespace, level: Level, at_best: Simulation, share: float
) -> str | None:
    """Return why no setting can hold a level, in words; None if one may."""
    # Calls that were measured (`--calls`) have no least duration.
    least = 0.0 if chosen.call is None else chosen.call + chosen.item
    if level.p99 is not None and least > level.p99:
        return f"no setting can: a call for one item takes {least:.3g} s"
    missed = level.misses(at_best) if chosen.outage else []
    if not missed:
        return None
    says = (
        f"no setting can: with a sink that is away for {chosen.outage:g} s and else "
        f"takes no time at all, this is missed: {', '.join(missed)}"
    )
    if share == 1.0 and level.p99 is not None and at_best.p99 > level.p99:
        says += (
            "\np99 is of what was tried; if the outage is rarer, say how rare, such as "
            "--outage-every 86400 for once a day"
        )
    return says


def say(text: str) -> None:
    """Print at once: the next line may take a while."""
    print(text, flush=True)  # noqa: T201 - a command


def _batches(most: int | None) -> Sequence[int]:
    if most is None:
        return BATCHES
    return [*(each for each in BATCHES if each < most), most]


def _config(level: Level) -> BatchQueueConfig[Any]:
    # `buffer_size` is per partition, and `candidates_of` makes two or more.
    size = 10_000 if level.waiting is None else max(1, min(10_000, level.waiting // 2))
    return BatchQueueConfig[Any](
        consumer=print,
        selector=round_robin,
        buffer_size=size,
        retry=Retry(attempts=1_000, retry_on=(OSError,)),
        shutdown_timeout=600.0,
    )


def _load(
    chosen: argparse.Namespace, times: Iterable[float] | None
) -> Iterator[tuple[float, object]]:
    if times is None:
        # The same each time, so that trials can be compared.
        rng = random.Random(_SEED)
        times = merge(_steady(chosen, rng), _burst(chosen))
    yield from ((at, None) for at in times)


def _steady(chosen: argparse.Namespace, rng: random.Random) -> Iterator[float]:
    now = rng.expovariate(chosen.rate) if chosen.rate else chosen.seconds
    while now < chosen.seconds:
        yield now
        now += rng.expovariate(chosen.rate)


def _burst(chosen: argparse.Namespace) -> Iterator[float]:
    """Return when the items of the burst come: at the same distance."""
    begins = max(0.0, (chosen.seconds - chosen.burst_seconds) / 2)
    for place in range(chosen.burst):
        yield begins + chosen.burst_seconds * place / chosen.burst


def _cost(chosen: argparse.Namespace) -> HandlerCost:
    if (chosen.call is None) == (chosen.calls is None):
        msg = "say what a call takes: either --call (and --item), or --calls FILE"
        raise BatchQueueError(msg)
    if chosen.calls is None:
        return lambda batch: chosen.call + chosen.item * len(batch)
    rule = "--calls must name a file of items,seconds per line"
    rows = _rows(chosen.calls, 2, rule)
    if not rows:
        msg = f"{rule}: {chosen.calls} is empty"
        raise BatchQueueError(msg)
    try:
        return Cost(Sample(_whole(size), seconds) for size, seconds in rows)
    except (TypeError, ValueError) as error:
        msg = f"{rule}: {error}"
        raise BatchQueueError(msg) from error


def _whole(size: float) -> int:
    """Return a number of items as an int."""
    if not size.is_integer():
        refuse("size", "a whole number", size)
    return int(size)


_HEAD: Final = (
    f"{'drain tasks':>11} {'linger':>7} {'max_batch':>9} {'p50':>8} {'p99':>8} "
    f"{'waiting':>9} {'lost':>7} {'use':>5}"
)


def _row(trial: Trial) -> str:
    seen, config = trial.simulation, trial.config
    use = sum(seen.use) / len(seen.use)
    return (
        f"{len(seen.use):>11} {config.linger:>7g} {config.max_batch or 0:>9,} "
        f"{seen.p50:>8.3f} {seen.p99:>8.3f} "
        f"{seen.peak_waiting + seen.peak_producers:>9,} "
        f"{seen.lost + seen.failed:>7,} {use:>5.0%}"
        f"  {', '.join(trial.misses) or 'holds'}"
    )


def _as_code(best: Trial) -> str:
    config = best.config
    count, producers = len(best.simulation.use), best.simulation.peak_producers
    waited = f"  # {producers:,} more waited for room" if producers else ""
    return (
        "\nBatchQueueConfig(\n"
        f"    drain_tasks=DrainTaskPolicy.fixed({count}),\n"
        f"    partitions=PartitionPolicy.fixed({2 * count}),\n"
        "    selector=round_robin,  # or by_key(...), if order matters\n"
        f"    buffer_size={config.buffer_size},{waited}\n"
        f"    max_batch={config.max_batch},\n"
        f"    linger={config.linger},\n"
        "    consumer=...,\n)"
    )


def _recorded(path: Path) -> list[float]:
    rule = "--load must name a file with seconds, or an ISO time, per line"
    firsts: dict[str, str] = {}

    def read(text: str) -> float:
        kind, seconds = _moment(text)
        firsts.setdefault(kind, text)
        if len(firsts) > 1:
            (first_kind, first), _ = firsts.items()
            msg = f"all of one kind, got {first!r} ({first_kind}) and {text!r} ({kind})"
            raise ValueError(msg)
        return seconds

    times = sorted(row[0] for row in _rows(path, 1, rule, read))
    if not times:
        msg = f"{rule}: {path} is empty"
        raise BatchQueueError(msg)
    return [at - times[0] for at in times]


def _moment(text: str) -> tuple[str, float]:
    """Return what kind of time it is, and seconds from whatever start.

    Of times of different kinds the distance is not known.
    """
    try:
        seconds = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text.strip())
        zone = "without" if moment.tzinfo is None else "with"
        return f"a time {zone} its zone", moment.timestamp()
    if not isfinite(seconds):
        msg = f"a finite number, got {text!r}"
        raise ValueError(msg)
    return "seconds", seconds


def _rows(
    path: Path, columns: int, rule: str, read: Callable[[str], float] = float
) -> list[list[float]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
        return [[read(row[place]) for place in range(columns)] for row in rows]
    except (OSError, ValueError, IndexError) as error:
        msg = f"{rule}: {error}"
        raise BatchQueueError(msg) from error


def _seconds(text: str) -> float:
    # A ValueError would be told with this function's name.
    with contextlib.suppress(ValueError):
        number = float(text)
        if isfinite(number) and number >= 0:
            return number
    msg = f"must be a number >= 0, got {text!r}"
    raise argparse.ArgumentTypeError(msg)


def _items(text: str) -> int:
    if not text.isdecimal():
        msg = f"must be a whole number >= 0, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        msg = f"must be a whole number above 0, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+) ?([KMG]iB)?", text)
    if found is None or int(found[1]) == 0:
        msg = f"must be a number of bytes above 0, as in 512MiB, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(found[1]) * _UNITS[found[2] or ""]
