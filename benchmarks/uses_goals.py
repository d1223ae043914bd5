"""Goals for how queues are used: from threads, one by one, with little room."""

from collections.abc import Callable

from benchmarks import (
    bridge_cpu,
    bridge_uses,
    busy_machine,
    crowd,
    importing,
    in_loop,
    lone_items,
    original_skew,
    room,
    small_batches,
)
from benchmarks.goal import Goal, Tables

# Who chooses by a key, or asks for a size, calls a function for each item.
_LESS = {bridge_uses.BY_KEY: 4.0, bridge_uses.SIZED: 1.0}


def _use(name: str) -> Goal:
    return Goal(
        f"bridge, {name}, beside janus",
        _LESS.get(name, 8.0),
        "times",
        lambda tables: tables["bridge uses/asyncio"].value(f"{name}: janus", "we are"),
    )


def _busy(name: str) -> Goal:
    return Goal(
        f"bridge, {name}, beside janus, {busy_machine.BUSY} other busy processes",
        5.0,
        "times",
        lambda tables: tables["busy machine"].value(f"{name}: janus", "we are"),
    )


def _lone(way: str, limit: float) -> Goal:
    def beside(tables: Tables) -> float:
        return tables[f"lone items/{way}"].value(lone_items.OURS, lone_items.BESIDE)

    def also(tables: Tables) -> str:
        others = tables[f"lone items/{way}"].value(lone_items.STREAM, lone_items.BESIDE)
        return f"anyio's stream: {others:.2f} x"

    what = f"a lone item, {way}, produce to handler, beside asyncio.Queue"
    return Goal(what, limit, "times", beside, is_at_most=True, also=also)


def _room(row: str) -> Callable[[Tables], float]:
    return lambda tables: tables["room"].value(row, "we are")


def _crowd(places: int) -> Callable[[Tables], float]:
    return lambda tables: tables["crowd"].value(crowd.queue_row(places), "we are")


def _all_wait(tables: Tables) -> str:
    ratio = _crowd(crowd.ROOMS[1])(tables)
    return f"room for {crowd.ROOMS[1]:,}, so that all wait: {ratio:.2f} x"


def _other_rooms(tables: Tables) -> str:
    careful = _room(room.careful_row(1))(tables)
    by_type = _room(room.queue_row(1))(tables) / _room(room.handler_row(1))(tables)
    return ", ".join(
        [
            f"with a type's handler: {by_type:.2f} x",
            f"beside a batcher that catches errors and counts: {careful:.2f} x",
            *(
                f"{count} producers: {_room(room.queue_row(count))(tables):.2f} x"
                for count in room.PRODUCERS[1:]
            ),
        ]
    )


def _of_floor(row: str) -> Callable[[Tables], float]:
    return lambda tables: tables["in loop/asyncio/100"].value(row, "of floor")


def _per_call(tables: Tables) -> str:
    rate = tables["small batches"].value(small_batches.ONE_PARTITION, "million/s")
    return f"flushed each, microseconds per handler's call: {1e6 / rate:.2f}"


def _modules(tables: Tables) -> str:
    return f"{tables['import'].value(importing.ROW, 'modules'):.0f} modules"


def _gained(tables: Tables) -> str:
    gained = tables["original skew"].value(SKEWED, original_skew.GAIN)
    return f"throughput {gained:+.1%}; the original's: 1.04, +21.0%"


SKEWED = original_skew.AWAITING

GOALS = [
    Goal(
        "one partition: produce_many(100), 100 types, of the floor",
        1.0,
        "percent",
        _of_floor(f"await produce_many(100){in_loop.ONE_PARTITION}"),
        also=_per_call,
    ),
    *(_use(name) for name in bridge_uses.NAMES),
    *(_busy(name) for name in busy_machine.USES),
    Goal(
        "items per batch, of a fast thread's",
        2_000,
        "count",
        lambda tables: tables["bridge/asyncio/1"].value("produce", "items per batch"),
    ),
    _lone(lone_items.PING_PONG, 5.0),
    _lone(lone_items.RARE, 8.0),
    Goal(
        "CPU per item from a thread, 1,000 items/s, beside janus",
        1.0,
        "times",
        lambda tables: tables["bridge cpu"].value(bridge_cpu.JANUS, bridge_cpu.BESIDE),
        is_at_most=True,
    ),
    Goal(
        f"waiting for room, {room.ROOM} items at most, beside asyncio.Queue",
        1.0,
        "times",
        _room(room.queue_row(1)),
        also=_other_rooms,
    ),
    Goal(
        f"{crowd.PRODUCERS:,} producers, default buffer, beside asyncio.Queue",
        1.0,
        "times",
        _crowd(crowd.DEFAULT),
        also=_all_wait,
    ),
    Goal(
        "the original's skew, rebalanced: max/min load of drain tasks",
        1.04,
        "times",
        lambda tables: tables["original skew"].value(SKEWED, original_skew.AFTER),
        is_at_most=True,
        also=_gained,
    ),
    Goal(
        "import, milliseconds beyond asyncio and anyio",
        0.025,
        "millis",
        lambda tables: tables["import"].value(importing.ROW, importing.BEYOND),
        is_at_most=True,
        also=_modules,
    ),
]
