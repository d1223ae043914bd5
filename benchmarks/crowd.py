"""Thousands of producers, as the requests of a service: at times all wait for room."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from batchqueue_async import BatchQueueConfig
from benchmarks import ours
from benchmarks.contender import Contender, Items, in_loop_rate
from benchmarks.peers_in_loop import batcher
from benchmarks.room import asyncio_queue, fed_by, floor
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Table
from benchmarks.throughput import COLUMNS, compare
from benchmarks.turns import Turns

PRODUCERS = 2_000
DEFAULT = BatchQueueConfig[Any]().buffer_size
ROOMS = (DEFAULT, PRODUCERS // 2)
_MOST = 60_000


def queue_row(room: int) -> str:
    """Return the row of `asyncio.Queue`, which the goals compare with."""
    return f"asyncio.Queue, put, room for {room:,}"


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Compare all at the default buffer, and where half of the producers wait."""
    empty = Table("crowd", f"{PRODUCERS:,} producers, each awaiting its own", COLUMNS)
    rate = partial(in_loop_rate, items=Items(1, _MOST), loop=loop)
    contenders = [one for room in ROOMS for one in _contenders_of(room, scale)]
    return compare(empty, contenders, rate, turns, scale.of(7, turns.rounds))


def _contenders_of(room: int, scale: Scale) -> Iterator[Contender]:
    feed_of = partial(fed_by, PRODUCERS)
    config = BatchQueueConfig[Any](buffer_size=room)
    own = ours.batch_queue(config, lambda queue: feed_of(queue.produce))
    group = f"room for {room:,}"
    made = partial(Contender, group=group, items=scale.of(_MOST, _MOST // 4))
    yield made(f"await produce, {group}", open=own, role="ours")
    yield made(f"floor: await put, {group}", open=floor(feed_of, room), role="floor")
    yield made(
        queue_row(room), open=asyncio_queue(feed_of, batcher, room), is_in_goals=True
    )
