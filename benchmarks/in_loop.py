"""Producers on the loop: the library, its peers and its floor."""

from functools import partial

from benchmarks import ours
from benchmarks import peers_in_loop as them
from benchmarks.contender import BOUND, Contender, Items, in_loop_rate
from benchmarks.floor import FloorQueue
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Table
from benchmarks.throughput import COLUMNS, compare
from benchmarks.turns import Turns

AWAITED = "one by one"
AT_ONCE = "at once"
IN_100 = "chunks of 100"
IN_1000 = "chunks of 1000"
ONE_PARTITION = ", one partition"


def table(
    kinds: int, loop_name: str, loop: LoopFactory, scale: Scale, turns: Turns
) -> Table:
    """Compare everybody with so many types on one kind of loop."""
    contenders = [*library(kinds, scale), *floors(kinds, scale), *peers(scale)]
    items = Items(kinds, max(each.items for each in contenders))
    of_types = "1 type" if kinds == 1 else f"{kinds} types"
    title = f"In the loop, {of_types}, {loop_name}; at most {BOUND:,} items wait"
    rate = partial(in_loop_rate, items=items, loop=loop)
    empty = Table(f"in loop/{loop_name}/{kinds}", title, COLUMNS)
    # Many short samples, so that what slows the machine down hits both of a pair.
    rounds = scale.of(31, turns.rounds) if loop_name == "asyncio" else None
    return compare(empty, contenders, rate, turns, rounds)


def library(kinds: int, scale: Scale) -> list[Contender]:
    """Return the library's verbs, as most configure it, and in one partition, too.

    With one type that is the same.
    """
    settings = {"": ours.ONE_PARTITION}
    if kinds > 1:
        settings = {"": ours.adaptive(kinds), ONE_PARTITION: ours.ONE_PARTITION}
    many = 2_000_000 if kinds == 1 else 500_000
    verbs = [
        ("await produce", AWAITED, ours.produce, 200_000, 1),
        ("produce_nowait", AT_ONCE, ours.produce_nowait, 200_000, 1),
        ("await produce_many(100)", IN_100, ours.produce_many, many, 100),
        ("await produce_many(1000)", IN_1000, ours.produce_many, many, 1000),
    ]
    return [
        Contender(
            name + suffix,
            group,
            ours.batch_queue(config, feed),
            scale.items(items),
            "ours",
            chunk,
        )
        for suffix, config in settings.items()
        for name, group, feed, items, chunk in verbs
    ]


def floors(kinds: int, scale: Scale) -> list[Contender]:
    """Return the floor's verbs."""
    many = 2_000_000 if kinds == 1 else 500_000
    verbs = [
        ("floor: await put", AWAITED, ours.floor_put, 200_000, 1),
        ("floor: put_nowait", AT_ONCE, ours.floor_put_nowait, 200_000, 1),
        ("floor: await put_many(100)", IN_100, ours.floor_put_many, many, 100),
        ("floor: await put_many(1000)", IN_1000, ours.floor_put_many, many, 1000),
    ]
    return [
        Contender(
            name,
            group,
            ours.floor(FloorQueue, feed),
            scale.items(items),
            "floor",
            chunk,
        )
        for name, group, feed, items, chunk in verbs
    ]


def peers(scale: Scale) -> list[Contender]:
    """Return what others offer, with fewer items for the slower ones."""
    return [*awaiting_peers(scale), *other_peers(scale)]


def awaiting_peers(scale: Scale) -> list[Contender]:
    """Return those that await each item."""
    few, many = scale.items(60_000), scale.items(200_000)

    def optional(name: str, module: str, *, is_slow: bool = False) -> Contender:
        opened = getattr(them, f"{module}_in_loop")
        return Contender(name, AWAITED, opened, few, needs=module, is_slow=is_slow)

    return [
        Contender("asyncio.Queue, put", AWAITED, them.asyncio_queue, many),
        Contender("anyio stream, send", AWAITED, them.anyio_send, scale.calls(20_000)),
        optional("janus, async put", "janus", is_slow=True),
        optional("culsans, async put", "culsans"),
        optional("aiologic, async put", "aiologic", is_slow=True),
        optional("aiostream, chunks(1000)", "aiostream"),
    ]


def other_peers(scale: Scale) -> list[Contender]:
    """Return those that await only a full queue, or take chunks."""
    each = them.asyncio_queue_each
    few, some = scale.items(200_000), scale.items(100_000)
    of_lists = Contender(
        "asyncio.Queue of lists, unmerged",
        IN_1000,
        them.asyncio_queue_of_lists,
        scale.items(1_000_000),
        "other",
        chunk=1000,
    )
    return [
        Contender("asyncio.Queue, put_nowait", AT_ONCE, them.asyncio_queue_nowait, few),
        Contender(
            "anyio stream, send_nowait",
            AT_ONCE,
            them.anyio_send_nowait,
            some,
            is_in_goals=True,
        ),
        Contender("asyncio.Queue, put each of 100", IN_100, each, few, chunk=100),
        Contender("asyncio.Queue, put each of 1000", IN_1000, each, few, chunk=1000),
        of_lists,
    ]
