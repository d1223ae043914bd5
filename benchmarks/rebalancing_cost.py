"""What rebalancing costs while there is nothing to move: the same rows, on and off."""

from dataclasses import replace
from functools import partial
from typing import Any

from batchqueue_async import (
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
)
from benchmarks import ours
from benchmarks.contender import BOUND, Contender, Items, in_loop_rate
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Column, Table
from benchmarks.turns import Samples, Turns

KINDS = 100
DRAIN_TASKS = 4
INTERVAL = 0.1
"""A hundredth of the default: each sample has some rounds."""

OFF = BatchQueueConfig[Any](
    drain_tasks=DrainTaskPolicy.fixed(DRAIN_TASKS),
    partitions=PartitionPolicy.fixed(KINDS),
    buffer_size=BOUND // KINDS,
)
ON = replace(OFF, rebalancing=Rebalancing(interval=INTERVAL))
VERBS = [
    ("await produce", ours.produce, 800_000, 1),
    ("produce_nowait", ours.produce_nowait, 1_000_000, 1),
    ("await produce_many(100)", ours.produce_many, 600_000, 100),
    ("await produce_many(1000)", ours.produce_many, 800_000, 1000),
]


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Measure each verb with and without, one after the other."""
    found = Table(
        "rebalancing",
        f"Rebalancing on, a round each {INTERVAL} s; {KINDS} types and partitions, "
        f"{DRAIN_TASKS} drain tasks",
        [
            Column("producing"),
            Column("time on / off", "percent"),
            Column("million/s, on", "millions"),
            Column("million/s, off", "millions"),
            Column("spread", "percent"),
        ],
    )
    items = Items(KINDS, 400_000)
    for name, feed, count, chunk in VERBS:
        measures = {}
        for state, config in (("on", ON), ("off", OFF)):
            opened = ours.batch_queue(config, feed)
            one = Contender(name, "", opened, scale.items(count), chunk=chunk)
            measures[state] = partial(in_loop_rate, one, items, loop)
        samples = turns.take(measures, rounds=scale.of(23, 5))
        add(found, name, samples["on"], samples["off"])
    return found


def add(found: Table, name: str, on: Samples, off: Samples) -> None:
    """Add a row."""
    spread = max(on.spread, off.spread)
    found.add(name, off.beside(on), on.median, off.median, spread)
