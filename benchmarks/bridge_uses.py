"""One thread's items, by how the queue is used: each use has a path of its own."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks import ours
from benchmarks import peers_bridge as them
from benchmarks.contender import BOUND, Contender, Handlers, Items, threads_rate
from benchmarks.floor import FloorBridge
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Table
from benchmarks.throughput import COLUMNS, compare
from benchmarks.turns import Turns

KEYS = 100
KINDS = 100
CONSUMER, ONE_HANDLER, BY_KEY = "consumer=", "one handler", "by_key"
SIZED = "consumer=, batches bounded by size"
OF_TYPES = f"{KINDS} types"
OF_BASE = f"{KINDS} types, their base's handler"
NAMES = (CONSUMER, ONE_HANDLER, OF_TYPES, OF_BASE, SIZED, BY_KEY)
_MOST = 60_000
_SIZE, _LARGEST = 100, 100_000


class Base:
    """What has a handler, while its subclasses have none."""

    __slots__ = ()


class Keyed:
    """An item with a key, which says in which partition it waits."""

    __slots__ = ("key",)

    key: int


@dataclass(frozen=True)
class Use:
    """One way of using a queue, its items, and how many make a sample."""

    name: str
    open: Callable[[Handlers], AbstractAsyncContextManager[Any]]
    items: Items
    count: int = _MOST


def uses() -> list[Use]:
    """Return the ways of using a queue; what an exporter does comes first."""
    one, put = ours.ONE_PARTITION, ours.bridge_produce
    plain = Items(1, _MOST)
    by_key = ours.keyed(lambda item: item.key)
    sized = replace(one, size_of=lambda _: _SIZE, max_batch_bytes=_LARGEST)
    return [
        Use(CONSUMER, ours.consumer_queue(one, put), plain),
        Use(ONE_HANDLER, ours.batch_queue(one, put), plain),
        Use(
            OF_TYPES,
            ours.batch_queue(ours.adaptive(KINDS), put),
            Items(KINDS, _MOST),
        ),
        Use(
            OF_BASE,
            ours.batch_queue(one, put),
            Items(KINDS, _MOST, Base, has_base_handler=True),
        ),
        # Janus and the floor do not ask for sizes.
        Use(SIZED, ours.consumer_queue(sized, put), plain),
        Use(BY_KEY, ours.batch_queue(by_key, put), with_keys(_MOST)),
    ]


def with_keys(count: int) -> Items:
    """Return items of one type whose keys take turns."""
    items = Items(1, count, Keyed)
    for number, item in enumerate(items.portions(count, 1)):
        item.key = number % KEYS
    return items


def table(loop_name: str, loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Compare each use with janus and with the floor, with the same items."""
    title = f"From 1 thread, by use, {loop_name}; at most {BOUND:,} items wait"
    empty = Table(f"bridge uses/{loop_name}", title, COLUMNS)
    return compared(empty, uses(), loop, scale, turns)


def compared(
    empty: Table,
    used: Sequence[Use],
    loop: LoopFactory,
    scale: Scale,
    turns: Turns,
) -> Table:
    """Fill the table with these uses."""
    there = {use.name: use for use in used}
    contenders = [one for use in used for one in contenders_of(use, scale)]

    def rate(contender: Contender) -> float:
        return threads_rate(contender, there[contender.group].items, loop, threads=1)

    return compare(empty, contenders, rate, turns, scale.of(9, turns.rounds))


def contenders_of(use: Use, scale: Scale) -> list[Contender]:
    """Return the library, the floor and janus in one use."""
    made = partial(Contender, group=use.name)
    floor_put = ours.floor(FloorBridge, ours.floor_bridge_put)
    count, few = scale.items(use.count), scale.items(use.count // 2)
    janus = made(f"{use.name}: janus", open=them.janus_bridge, items=few)
    janus.needs, janus.is_in_goals = "janus", True
    return [
        made(use.name, open=use.open, items=count, role="ours"),
        made(f"{use.name}: floor", open=floor_put, items=count, role="floor"),
        janus,
    ]
