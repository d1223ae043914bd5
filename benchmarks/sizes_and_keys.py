"""Settings for which each item is looked at: its size is asked for, or its key."""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from batchqueue_async import BatchQueueConfig, fair_by
from benchmarks import ours
from benchmarks.contender import BOUND, Contender, Items, in_loop_rate
from benchmarks.floor import FloorQueue
from benchmarks.peers_sizes_and_keys import FairByHand, SizedByHand, by_hand
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Table
from benchmarks.throughput import COLUMNS, compare
from benchmarks.turns import Turns

_MOST = 200_000
_SIZE = 50
_ROOM = BOUND * _SIZE
_BATCH = _ROOM // 10
KEYS = 100
_turns = count()

SIZED = "size_of, buffer_bytes, max_batch_bytes"
FAIR = f"fair_by, {KEYS} keys"
SETTINGS: dict[str, tuple[BatchQueueConfig[Any], Callable[[Any], Any]]] = {}


def _size_of(_item: object) -> int:
    return _SIZE


def _key(_item: object) -> int:
    return next(_turns) % KEYS


SETTINGS[SIZED] = (
    BatchQueueConfig(
        buffer_size=BOUND,
        size_of=_size_of,
        buffer_bytes=_ROOM,
        max_batch_bytes=_BATCH,
    ),
    lambda handle: SizedByHand(_size_of, _ROOM, _BATCH, handle),
)
SETTINGS[FAIR] = (
    BatchQueueConfig(
        buffer_size=BOUND // KEYS, selector=fair_by(_key), max_batch=BOUND // 10
    ),
    lambda handle: FairByHand(_key, BOUND // KEYS, BOUND // 10, handle),
)


def by_hand_row(setting: str) -> str:
    """Return the row of what does the same by hand."""
    return f"{setting}: by hand"


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Compare each setting with the same by hand, and with a floor that has neither."""
    contenders = [one for setting in SETTINGS for one in contenders_of(setting, scale)]
    empty = Table("sizes and keys", "Each item is looked at", COLUMNS)
    rate = partial(in_loop_rate, items=Items(1, _MOST), loop=loop)
    return compare(empty, contenders, rate, turns)


def contenders_of(setting: str, scale: Scale) -> list[Contender]:
    """Return the library, its floor and what does the same by hand."""
    config, make = SETTINGS[setting]
    own = ours.batch_queue(
        config, lambda queue: partial(ours.each_awaited, queue.produce)
    )
    floor = ours.floor(FloorQueue, lambda queue: partial(ours.each_awaited, queue.put))
    made = partial(Contender, group=setting, items=scale.of(_MOST, _MOST // 4))
    return [
        made(f"{setting}: await produce", open=own, role="ours"),
        made(f"{setting}: floor without it", open=floor, role="floor"),
        made(by_hand_row(setting), open=by_hand(make), is_in_goals=True),
    ]
