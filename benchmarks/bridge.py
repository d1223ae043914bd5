"""Producers on threads: the library, its peers and its floor."""

from functools import partial

from benchmarks import ours
from benchmarks import peers_bridge as them
from benchmarks.contender import BOUND, Contender, Items, threads_rate
from benchmarks.exporter_peer import span_processor
from benchmarks.floor import FloorBridge
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Table
from benchmarks.throughput import COLUMNS, compare
from benchmarks.turns import Turns

ONE = "one by one"
MANY = "chunks of 1000"


def table(
    threads: int, loop_name: str, loop: LoopFactory, scale: Scale, turns: Turns
) -> Table:
    """Compare all contenders with so many threads on one kind of loop."""
    contenders = [
        *library(scale),
        *in_chunks(scale),
        *waiting_once(scale),
        *waiting_each_time(scale),
    ]
    items = Items(1, max(each.items for each in contenders))
    rate = partial(threads_rate, items=items, loop=loop, threads=threads)
    from_threads = f"{threads} thread{'' if threads == 1 else 's'}"
    title = f"From {from_threads}, 1 type, {loop_name}; at most {BOUND:,} items wait"
    # How much threads slow each other down varies more than all else.
    rounds = scale.of(15 if loop_name == "asyncio" else 5, turns.rounds)
    empty = Table(f"bridge/{loop_name}/{threads}", title, COLUMNS)
    return compare(empty, contenders, rate, turns, rounds)


def library(scale: Scale) -> list[Contender]:
    """Return the library and its floor."""
    produce = ours.batch_queue(ours.ONE_PARTITION, ours.bridge_produce)
    many = ours.batch_queue(ours.ONE_PARTITION, ours.bridge_produce_many)
    floor_put = ours.floor(FloorBridge, ours.floor_bridge_put)
    floor_many = ours.floor(FloorBridge, ours.floor_bridge_put_many)
    one, chunks = scale.items(200_000), scale.items(2_000_000)
    return [
        Contender("produce", ONE, produce, one, "ours"),
        Contender("produce_many(1000)", MANY, many, chunks, "ours", 1000),
        Contender("floor: put", ONE, floor_put, one, "floor"),
        Contender("floor: put_many(1000)", MANY, floor_many, chunks, "floor", 1000),
    ]


def in_chunks(scale: Scale) -> list[Contender]:
    """Return those that take chunks; without a bulk put it would be one by one."""
    return [
        Contender(
            "run_coroutine_threadsafe, 1000",
            MANY,
            them.threadsafe_chunks,
            scale.items(200_000),
            chunk=1000,
        ),
        Contender(
            "janus of lists, unmerged",
            MANY,
            them.janus_of_lists,
            scale.items(1_000_000),
            "other",
            1000,
            "janus",
        ),
    ]


def waiting_once(scale: Scale) -> list[Contender]:
    """Return the queues, whose producers wait only when they are full."""
    items, few = scale.items(100_000), scale.items(40_000)
    fewest = scale.calls(5_000)
    return [
        Contender(
            "janus",
            ONE,
            them.janus_bridge,
            scale.items(50_000),
            needs="janus",
            is_in_goals=True,
        ),
        Contender("culsans", ONE, them.culsans_bridge, items, needs="culsans"),
        Contender("aiologic", ONE, them.aiologic_bridge, fewest, needs="aiologic"),
        Contender("queue.Queue and executor", ONE, them.executor, items),
        Contender("call_soon_threadsafe, semaphore", ONE, them.semaphore, few),
        span_processor(scale.items(400_000)),
    ]


def waiting_each_time(scale: Scale) -> list[Contender]:
    """Return the calls, whose producers wait for each item."""
    coroutines, portal = scale.calls(3_000), scale.calls(1_000)
    return [
        Contender(
            "run_coroutine_threadsafe", ONE, them.threadsafe_coroutines, coroutines
        ),
        Contender("anyio portal, send", ONE, them.portal, portal),
    ]
