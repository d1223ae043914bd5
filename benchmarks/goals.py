"""What the library wants to reach, and where it is measured."""

from collections.abc import Callable

from benchmarks import uses_goals
from benchmarks.goal import Goal, Tables
from benchmarks.in_loop import ONE_PARTITION
from benchmarks.latency import BEYOND
from benchmarks.turns import Samples


def _in_loop(kinds: int, row: str, column: str) -> Callable[[Tables], float]:
    return lambda tables: tables[f"in loop/asyncio/{kinds}"].value(row, column)


def _bridge(threads: int, row: str, column: str) -> Callable[[Tables], float]:
    return lambda tables: tables[f"bridge/asyncio/{threads}"].value(row, column)


def _one_partition(verb: str) -> Callable[[Tables], str]:
    value = _in_loop(100, verb + ONE_PARTITION, "of floor")
    return lambda tables: f"one partition: {value(tables):.0%}"


def _adaptive(verb: str) -> Callable[[Tables], str]:
    value = _in_loop(100, verb, "of floor")
    return lambda tables: f"adaptive: {value(tables):.0%}"


def _floor(kinds: int, name: str = "the floor itself") -> Callable[[Tables], str]:
    rate = _in_loop(kinds, "floor: await put_many(1000)", "million/s")
    return lambda tables: f"{name}: {rate(tables) / 1e6:.2f}"


def _beside_anyio(row: str) -> Callable[[Tables], float]:
    def measured(tables: Tables) -> float:
        # The two are in different groups, so the table has no ratio of theirs.
        samples = tables["in loop/asyncio/100"].samples
        ours, theirs = samples[row], samples["anyio stream, send_nowait"]
        return Samples(ours).beside(Samples(theirs))

    return measured


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
AWAITED = "await produce"
NOWAIT = "produce_nowait"
MANY = "await produce_many(1000)"

# With 100 types, what most configure: adaptive partitions, 4 drain tasks.
HEADLINE = [
    Goal(
        "await produce, 100 types, of the floor",
        0.7,
        "percent",
        _in_loop(100, AWAITED, "of floor"),
        also=_one_partition(AWAITED),
    ),
    Goal(
        "... beside asyncio.Queue",
        2.5,
        "times",
        _in_loop(100, "asyncio.Queue, put", "we are"),
    ),
    Goal(
        "produce_many(1000), 100 types, of the floor",
        0.5,
        "percent",
        _in_loop(100, MANY, "of floor"),
        also=_one_partition(MANY),
    ),
    Goal(
        "... million/s; the Java original has 28",
        28e6,
        "millions",
        _in_loop(100, MANY, "million/s"),
        also=_floor(100, "what grouping allows, the floor"),
    ),
]

IN_ONE_PARTITION = [
    Goal(
        "one partition: await produce, 100 types, of the floor",
        0.75,
        "percent",
        _in_loop(100, AWAITED + ONE_PARTITION, "of floor"),
    ),
    Goal(
        "... beside anyio's send_nowait",
        1.0,
        "times",
        _beside_anyio(AWAITED + ONE_PARTITION),
        also=lambda tables: f"adaptive: {_beside_anyio(AWAITED)(tables):.2f} x",
    ),
    Goal(
        "one partition: produce_nowait, 100 types, of the floor",
        0.75,
        "percent",
        _in_loop(100, NOWAIT + ONE_PARTITION, "of floor"),
        also=_adaptive(NOWAIT),
    ),
    Goal(
        "one partition: produce_many(1000), 100 types, of the floor",
        0.75,
        "percent",
        _in_loop(100, MANY + ONE_PARTITION, "of floor"),
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
]

GOALS = [
    *HEADLINE,
    *IN_ONE_PARTITION,
    Goal("bridge, 1 thread, beside janus", 8.0, "times", _bridge(1, "janus", "we are")),
    Goal(
        "bridge, 4 threads, beside janus", 8.0, "times", _bridge(4, "janus", "we are")
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
    *uses_goals.GOALS,
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
