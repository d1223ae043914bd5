"""A cancellation before each single callback of a crowded scene, of each task in it.

`tests/engine` sweeps over turns of the loop, and over one call at a time. Here a whole
scene goes on meanwhile (producers in line, retries, growth, handoffs, a flush, the
end), the ledger looks on after every callback, and the queue's own tasks are victims.
"""

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchqueue_async
from batchqueue_async import PartitionPolicy, Retry
from batchqueue_async.testing.virtual_time import frames_of
from tests.properties.gated_handler import A, B, C, D, Failed, Item
from tests.properties.setup import INTERVAL, Setup
from tests.properties.stage import Stage

LIBRARY = str(Path(batchqueue_async.__file__).parent)

SETUP = Setup(
    drain_tasks=2,
    buffer_size=2,
    max_batch=2,
    linger=0.0,
    retry=Retry(attempts=2, wait_initial=0.001),
    timeout=None,
    hooks=True,
    stubborn=False,
)


def scene(stage: Stage, calls: dict[str, asyncio.Task[Any]]) -> Iterator[None]:
    """Play it; each `yield` is a moment between two callbacks."""

    def run(callbacks: int) -> Iterator[None]:
        for _ in range(callbacks):
            if not stage.loop.ready:
                if (timer := stage.loop.next_timer) is None:
                    return
                stage.loop.advance(timer)
            stage.step()
            yield

    def produce(name: str, *of: type[Item]) -> None:
        items = stage.new_items(*of)
        one = len(items) == 1
        queue = stage.queue
        stage.ledger.mixed(items)
        call = queue.produce(items[0]) if one else queue.produce_many(items)
        calls[name] = stage.produce(call, items).task

    def add_handler(kind: type[Item], weight: float = 1.0) -> None:
        stage.queue.add_handler(kind, stage.new_handler(kind), weight)

    for kind in (A, B, C):
        add_handler(kind)
    produce("first", A, A)
    yield from run(4)
    produce("produce_many", A, B, A, A, B, C)
    produce("produce", A)
    produce("behind", A, A)
    calls["flush"] = stage.begin_flush(None)
    yield from run(6)
    fail_one(stage)
    add_handler(D, 2.0)
    stage.plans.plan = [1, 0]
    stage.loop.advance(stage.loop.time() + INTERVAL)
    yield from run(8)
    produce("late", D, A)
    yield from run(8)
    stage.open_gates()
    yield from run(25)
    stage.plans.plan = [0, 1]
    stage.loop.advance(stage.loop.time() + INTERVAL)
    yield from run(10)
    produce("last", A, B)
    calls["shutdown"] = stage.begin_shutdown(None)
    yield from run(40)


def fail_one(stage: Stage) -> None:
    for call in stage.ledger.calls[:1]:
        call.end(Failed())


def place_of(task: asyncio.Task[Any]) -> str:
    """The library's innermost function that the task waits in."""
    place = "not begun"
    for frame in frames_of(task.get_coro()):
        if frame.f_code.co_filename.startswith(LIBRARY):
            place = frame.f_code.co_qualname
    return place


def victim_of(
    stage: Stage, name: str, calls: dict[str, asyncio.Task[Any]]
) -> asyncio.Task[Any] | None:
    named = {each.get_name(): each for each in asyncio.all_tasks(stage.loop)}
    victim = calls.get(name, named.get(f"q: {name}"))
    return None if victim is None or victim.done() else victim


def play(name: str, moment: int) -> str | None:
    """Cancel the victim at one moment; returns where it was, None if it was not."""
    random.seed(0)
    stage = Stage(SETUP, partitions=PartitionPolicy.adaptive(multiplier=2))
    calls: dict[str, asyncio.Task[Any]] = {}
    try:
        playing = scene(stage, calls)
        for _ in itertools.islice(playing, moment):
            pass
        # The scene by itself is the same each time.
        if (victim := victim_of(stage, name, calls)) is None:
            return None
        place = place_of(victim)
        stage.calls.cancel(victim)
        for _ in playing:
            pass
        finish(stage)
        return place
    finally:
        stage.close()


def finish(stage: Stage) -> None:
    """Nobody waits any more, and everything is settled once."""
    stage.open_gates()
    stage.pass_time(3 * INTERVAL)
    stuck = stage.calls.stuck_items
    assert not stuck, f"a lost wake-up: {stuck} are waited with"
    stage.run_to_end(stage.begin_shutdown(None))
    for task, _ in stage.calls.flushes:
        stage.run_to_end(task)
    stage.check_settled()
    stage.ledger.check_ended(stage.check_stats())
    stage.check_nothing_survives()


VICTIMS = {
    "produce_many": 1,
    "produce": 1,
    "behind": 1,
    "flush": 2,
    "shutdown": 1,
    "drain task 0": 3,
    "drain task 1": 3,
    "rebalancing": 2,
}
"""Each with the number of the library's functions in which it waits in this scene."""


@pytest.mark.parametrize(
    "name, waits",
    VICTIMS.items(),
    ids=VICTIMS,
)
def test_at_every_callback(name: str, waits: int) -> None:
    places: set[str] = set()
    moments = sum(1 for _ in scene_alone())
    assert moments > 80
    for moment in range(moments):
        try:
            place = play(name, moment)
        except BaseException as error:
            error.add_note(f"{name} was cancelled at moment {moment} of {moments}")
            raise
        places |= {place} if place else set()
    assert len(places) >= waits, f"it was cancelled in no more than {places}"


def scene_alone() -> Iterator[None]:
    random.seed(0)
    stage = Stage(SETUP, partitions=PartitionPolicy.adaptive(multiplier=2))
    try:
        yield from scene(stage, {})
    finally:
        stage.close()
