"""What the library wants to reach, and where it is measured."""

from collections.abc import Callable

from benchmarks import bridge_cpu, bridge_uses, lone_items
from benchmarks.goal import Goal, Tables
from benchmarks.latency import BEYOND
from benchmarks.turns import Samples


def _in_loop(kinds: int, row: str, column: str) -> Callable[[Tables], float]:
    return lambda tables: tables[f"in loop/asyncio/{kinds}"].value(row, column)


def _bridge(threads: int, row: str, column: str) -> Callable[[Tables], float]:
    return lambda tables: tables[f"bridge/asyncio/{threads}"].value(row, column)


def _use(name: str) -> Goal:
    by_key = name == "by_key"
    return Goal(
        f"bridge, {name}, beside janus",
        4.0 if by_key else 8.0,
        "times",
        lambda tables: tables["bridge uses/asyncio"].value(f"{name}: janus", "we are"),
    )


def _lone(way: str, limit: float) -> Goal:
    def beside(tables: Tables) -> float:
        return tables[f"lone items/{way}"].value(lone_items.OURS, lone_items.BESIDE)

    def also(tables: Tables) -> str:
        others = tables[f"lone items/{way}"].value(lone_items.STREAM, lone_items.BESIDE)
        return f"anyio's stream: {others:.2f} x"

    what = f"a lone item, {way}, produce to handler, beside asyncio.Queue"
    return Goal(what, limit, "times", beside, is_at_most=True, also=also)


def _adaptive(verb: str) -> Callable[[Tables], str]:
    row = f"{verb}, adaptive partitions"
    value = _in_loop(100, row, "of floor")
    return lambda tables: f"adaptive partitions: {value(tables):.0%}"


def _floor(kinds: int, name: str = "the floor itself") -> Callable[[Tables], str]:
    rate = _in_loop(kinds, "floor: await put_many(1000)", "million/s")
    return lambda tables: f"{name}: {rate(tables) / 1e6:.2f}"


def _beside_anyio(tables: Tables) -> float:
    # Of another group, so the table does not have it.
    samples = tables["in loop/asyncio/100"].samples
    ours, theirs = samples["await produce"], samples["anyio stream, send_nowait"]
    return Samples(ours).beside(Samples(theirs))


def _behind_in_loop(tables: Tables) -> float:
    return tables["latency/asyncio/1000"].value("from a thread", BEYOND)


def _waiting(tables: Tables) -> float:
    return max(float(row[1] or 0) for row in tables["waiting"].rows)


def _rebalancing(tables: Tables) -> float:
    return max(float(row[1] or 0) for row in tables["rebalancing"].rows)


def _growth(way: str) -> Callable[[Tables], float]:
    return lambda tables: tables["growth/types"].value("10,000", f"beside 100, {way}")


def _growth_of_others(tables: Tables) -> str:
    single, floor = _growth("one partition")(tables), _growth("floor")(tables)
    return f"one partition: {single:.2f} x, floor: {floor:.2f} x"


THREADSAFE = "run_coroutine_threadsafe, 1000"
MANY = "await produce_many(1000)"

GOALS = [
    Goal(
        "await produce, 100 types, of the floor",
        0.75,
        "percent",
        _in_loop(100, "await produce", "of floor"),
        also=_adaptive("await produce"),
    ),
    Goal(
        "... beside asyncio.Queue",
        2.5,
        "times",
        _in_loop(100, "asyncio.Queue, put", "we are"),
    ),
    Goal("... beside anyio's send_nowait", 1.0, "times", _beside_anyio),
    Goal(
        "produce_nowait, 100 types, of the floor",
        0.75,
        "percent",
        _in_loop(100, "produce_nowait", "of floor"),
        also=_adaptive("produce_nowait"),
    ),
    Goal(
        "produce_many(1000), 1 type, of the floor",
        0.9,
        "percent",
        _in_loop(1, MANY, "of floor"),
        also=lambda _: "each attempt gets a copy of its own",
    ),
    Goal(
        "... million/s; the Java original has 47",
        47e6,
        "millions",
        _in_loop(1, MANY, "million/s"),
        also=_floor(1),
    ),
    Goal(
        "produce_many(1000), 100 types, of the floor",
        0.75,
        "percent",
        _in_loop(100, MANY, "of floor"),
        also=_adaptive(MANY),
    ),
    Goal(
        "... million/s; the Java original has 28",
        28e6,
        "millions",
        _in_loop(100, MANY, "million/s"),
        also=_floor(100, "what grouping allows, the floor"),
    ),
    Goal("bridge, 1 thread, beside janus", 8.0, "times", _bridge(1, "janus", "we are")),
    Goal(
        "bridge, 4 threads, beside janus", 8.0, "times", _bridge(4, "janus", "we are")
    ),
    *(_use(name) for name in bridge_uses.NAMES),
    Goal(
        "items per batch, of a fast thread's",
        2_000,
        "count",
        _bridge(1, "produce", "items per batch"),
    ),
    Goal(
        "bridge, 4 threads, of its floor",
        0.7,
        "percent",
        _bridge(4, "produce", "of floor"),
    ),
    Goal(
        "bridge produce_many(1000), 1 thread, of its floor",
        0.4,
        "percent",
        _bridge(1, "produce_many(1000)", "of floor"),
    ),
    Goal(
        "bridge produce_many(1000), 4 threads, of its floor",
        0.4,
        "percent",
        _bridge(4, "produce_many(1000)", "of floor"),
    ),
    Goal(
        "... 1 thread, beside the best peer that takes chunks",
        15.0,
        "times",
        _bridge(1, THREADSAFE, "we are"),
    ),
    Goal(
        "latency at 1,000 items/s, p99, microseconds",
        0.002,
        "micros",
        lambda tables: tables["latency/asyncio/1000"].value("on the loop", "p99"),
        is_at_most=True,
    ),
    Goal(
        "... the bridge's beyond it, in bare call_soon_threadsafe's",
        1.5,
        "times",
        _behind_in_loop,
        is_at_most=True,
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
        "10,000 idle queues, CPU of a core",
        0.01,
        "percent",
        lambda tables: tables["idle"].value("10,000", "CPU of a core"),
        is_at_most=True,
    ),
    Goal(
        "... bytes each",
        8 * 1024,
        "bytes",
        lambda tables: tables["idle"].value("10,000", "bytes each"),
        is_at_most=True,
    ),
    Goal(
        "waiting item, bytes beyond the item", 16.0, "bytes", _waiting, is_at_most=True
    ),
    Goal(
        "rebalancing on / off, the worst verb",
        1.03,
        "percent",
        _rebalancing,
        is_at_most=True,
    ),
    Goal(
        "cost per item, 10,000 types / 100 types",
        1.25,
        "times",
        _growth("adaptive partitions"),
        is_at_most=True,
        also=_growth_of_others,
    ),
]
