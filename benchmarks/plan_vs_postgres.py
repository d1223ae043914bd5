"""A plan beside reality: python -m benchmarks.plan_vs_postgres [--quick].

Calls of a PostgreSQL sink are measured; a load is simulated with what they took, and
then really sent through a queue to that server. Both have the same arrivals: at random,
two fifths of what the sink can take, and three times as much as that for a second.
Shown is what was foretold divided by what was seen; medians of five turns, each with
its own measurement right before. Takes three minutes.
"""

import argparse
import asyncio
import os
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    WhenFull,
    round_robin,
)
from batchqueue_async.simulation import Cost, measure, simulate
from benchmarks.postgres_sink import PostgresSink, postgres_sink
from benchmarks.table import Column, Table, show

TURNS = 5
SECONDS = 6.0
BATCH = 20
SIZES = (1, 5, BATCH)
LEVEL = 0.4
BURST = 3.0
"""Of what the sink can take."""
TICK = 0.002

ONE = BatchQueueConfig[float](consumer=print, max_batch=BATCH)
SETTINGS = {
    "1 drain task": ONE,
    "2 drain tasks": replace(
        ONE,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(4),
        selector=round_robin,
    ),
    "buffer_size=500, DROP_NEWEST": replace(
        ONE, buffer_size=500, when_full=WhenFull.DROP_NEWEST
    ),
}


@dataclass(frozen=True)
class Seen:
    """What a run was like."""

    peak: float
    p50: float
    p99: float
    use: float
    lost: float


def load(capacity: float, seconds: float) -> Iterator[float]:
    """Return when items come: the same for the same capacity."""
    rng, now = random.Random(5), 0.0
    while True:
        is_burst = seconds / 4 <= now < seconds / 4 + 1
        now += rng.expovariate(capacity * (BURST if is_burst else LEVEL))
        if now >= seconds:
            return
        yield now


def foretold(
    config: BatchQueueConfig[float], arrivals: Sequence[float], cost: Cost
) -> Seen:
    """Simulate."""
    seen = simulate(config, ((at, at) for at in arrivals), cost)
    peak = seen.peak_waiting + seen.peak_producers
    return Seen(peak, seen.p50, seen.p99, statistics.fmean(seen.use), seen.lost)


async def real(
    config: BatchQueueConfig[float], arrivals: Sequence[float], sink: PostgresSink
) -> Seen:
    """Really send the load: items that are due, every two milliseconds at least."""
    loop = asyncio.get_running_loop()
    ages: list[float] = []
    began, peak = loop.time(), 0

    async def consume(batch: list[float]) -> None:
        await sink.consume(batch)
        ages.extend(loop.time() - began - at for at in batch)

    queue = BatchQueue("real", replace(config, consumer=consume))
    async with queue:
        began = loop.time()
        for chunk in _ticks(arrivals):
            await asyncio.sleep(chunk[-1] - (loop.time() - began))
            for at in chunk:
                # No producer waits: the buffer has room for this load, or drops items.
                queue.produce_nowait(at)
            peak = max(peak, queue.stats().waiting)
        await queue.shutdown(None)
        seconds = loop.time() - began
    ages.sort()
    stats = queue.stats()
    use = statistics.fmean(each.busy / seconds for each in stats.drain_tasks)
    lost = stats.rejected + stats.dropped
    return Seen(
        peak, ages[len(ages) // 2], ages[int(0.99 * len(ages))], use, float(lost)
    )


def _ticks(arrivals: Sequence[float]) -> Iterator[list[float]]:
    chunk: list[float] = []
    for at in arrivals:
        if chunk and at - chunk[0] > TICK:
            yield chunk
            chunk = []
        chunk.append(at)
    if chunk:
        yield chunk


async def turn(
    config: BatchQueueConfig[float],
    sink: PostgresSink,
    arrivals: list[float],
    seconds: float,
) -> tuple[Seen, Seen]:
    """Measure calls, simulate, then run; the first turn makes the arrivals."""
    at_once = config.drain_tasks.resolve()  # type: ignore[union-attr]
    await sink.clear()
    cost = await measure(sink, [0.5], sizes=SIZES, calls=30, at_once=at_once)
    if not arrivals:
        full = [
            each.seconds
            for each in cost.samples
            if (each.size, each.at_once) == (BATCH, at_once)
        ]
        capacity = at_once * BATCH / statistics.fmean(full)
        arrivals += load(capacity, seconds)
    return foretold(config, arrivals, cost), await real(config, arrivals, sink)


async def table(turns: int, seconds: float) -> Table:
    """Return foretold by seen, for each setting."""
    found = Table(
        "plan vs postgres",
        f"Foretold / seen with PostgreSQL; medians of {turns} turns of {seconds:.0f} s",
        [
            Column("setting"),
            *(Column(name, "times") for name in ("peak", "p50", "p99", "use", "lost")),
            Column("p99 seen, ms", "millis"),
            Column("peak seen", "count"),
        ],
    )
    async with postgres_sink(connections=4) as sink:
        for name, config in SETTINGS.items():
            arrivals: list[float] = []
            pairs = [await turn(config, sink, arrivals, seconds) for _ in range(turns)]
            seen = [pair[1] for pair in pairs]
            found.add(
                name,
                *(_ratio(pairs, field.name) for field in fields(Seen)),
                statistics.median(each.p99 for each in seen),
                statistics.median(each.peak for each in seen),
            )
    found.notes.append(f"load average {os.getloadavg()[0]:.1f} at the end")
    return found


def _ratio(pairs: list[tuple[Seen, Seen]], of: str) -> float | None:
    ratios = [getattr(a, of) / getattr(b, of) for a, b in pairs if getattr(b, of)]
    return statistics.median(ratios) if ratios else None


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="plan_vs_postgres", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn of 3 s each")
    quick = parser.parse_args().quick
    show(asyncio.run(table(1 if quick else TURNS, 3.0 if quick else SECONDS)))


if __name__ == "__main__":
    main()
