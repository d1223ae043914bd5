"""Small batches: a chunk with an item of each of many types, handled before the next.

Each handler is called with one item, so what counts is what a call costs, and what
comes around it: the loop's turn, above all.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from batchqueue_async import BatchQueue
from benchmarks import ours
from benchmarks.contender import Contender, Feed, Items, in_loop_rate
from benchmarks.floor import FloorQueue
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Table
from benchmarks.throughput import COLUMNS, compare
from benchmarks.turns import Turns

KINDS = 100
GROUP = "flushed"
OURS = "produce_many(100), flush"
ONE_PARTITION = f"{OURS}, one partition"


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Compare the library with its floor."""
    chunked = partial(Contender, group=GROUP, items=scale.of(20_000, 5_000))
    settings = {OURS: ours.adaptive(KINDS), ONE_PARTITION: ours.ONE_PARTITION}
    contenders = [
        chunked(name, open=ours.batch_queue(config, flushing), role="ours")
        for name, config in settings.items()
    ]
    floor = ours.floor(FloorQueue, floor_flushing)
    contenders.append(chunked("floor: put_many(100), flush", open=floor, role="floor"))
    for each in contenders:
        each.chunk = KINDS
    title = f"Small batches: chunks of {KINDS} types, each flushed"
    rate = partial(in_loop_rate, items=Items(KINDS, 10_000), loop=loop)
    empty = Table("small batches", title, COLUMNS)
    return compare(empty, contenders, rate, turns, scale.of(15, turns.rounds))


def flushing(queue: BatchQueue[Any]) -> Feed:
    """Feed chunk by chunk, and have each handled before the next."""

    async def feed(portions: Sequence[Any]) -> None:
        for chunk in portions:
            await queue.produce_many(chunk)
            await queue.flush()

    return feed


def floor_flushing(queue: FloorQueue) -> Feed:
    """Feed the floor in the same way."""

    async def feed(portions: Sequence[Any]) -> None:
        for chunk in portions:
            await queue.put_many(chunk)
            await queue.flush()

    return feed
