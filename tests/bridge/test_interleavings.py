"""Every interleaving of two calls of which one is suspended in the middle.

One thread stands still at the n-th point of its call, and somebody else makes a whole
call, unless a lock keeps it out; then the first one goes on. For each n.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Self

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from tests.bridge.background import answers, in_background, wait_until
from tests.bridge.gated import Gated, partition_of
from tests.bridge.interruptions import Interruption
from tests.support.oracle import check_accounts, check_settled

Bridge = SyncBatchQueue[Any]
Call = Callable[[Bridge], object]

MOST_POINTS = 400
LET_IN = 0.0015
"""Seconds after which a call that has not returned is taken to be locked out."""


class Scene:
    """One queue, one interruption, and all that must be true at the end."""

    def __init__(
        self, loop_thread: LoopThread, config: BatchQueueConfig[Any], at: int
    ) -> None:
        self.handler = Gated(is_open=False)
        self.queue: Bridge = loop_thread.open(f"q{at}", config, {int: self.handler})
        self._size = config.buffer_size
        self._at = at
        self._inner: list[Future[Any]] = []
        self._limit_broken: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Nothing that went wrong here holds up the end of the loop thread.
        self.handler.gate.set()

    def stall(self) -> None:
        assert self.queue.produce(0)
        assert self.handler.entered.wait(10)

    def play(self, outer: Call, inner: Call) -> Interruption:
        def act() -> None:
            call = in_background(inner, self.queue)
            with contextlib.suppress(TimeoutError):
                call.result(LET_IN)
            self._inner.append(call)
            self._look()

        interruption = Interruption(self._at, act)
        with interruption:
            outer(self.queue)
        self._look()
        answers(self._inner, patience=10)
        self._look()
        self.where = f"suspended at {interruption.where}"
        return interruption

    def end(self, *, in_order: bool = True) -> None:
        stats = check_accounts(self.queue._queue)
        self.handler.gate.set()
        # Without a flush: a lost wake-up would be mended by it.
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self.queue._queue.stats().waiting == 0)
        assert self.queue._queue.stats().waiting == 0, f"never handled: {self.where}"
        assert not self._limit_broken, f"{self._limit_broken} wait: {self.where}"
        assert self.queue.shutdown(10) == [], self.where
        handled = self.handler.handled
        assert len(set(handled)) == len(handled), f"doubled: {self.where}"
        for first in (100, 200):
            mine = [item for item in handled if first <= item < first + 100]
            assert not in_order or mine == sorted(mine), f"reordered: {self.where}"
        assert check_settled(self.queue).handled + stats.dropped >= len(handled)

    def _look(self) -> None:
        waiting = len(partition_of(self.queue).items)
        if waiting > self._size:
            self._limit_broken.append(waiting)


def sweep(attempt: Callable[[int], Interruption]) -> list[str]:
    def all_points() -> Iterator[str]:
        for at in range(MOST_POINTS):
            try:
                interruption = attempt(at)
            except AssertionError as error:
                yield str(error).partition("\n")[0]
            else:
                if not interruption.has_acted:
                    assert at, "there are no points"
                    return

    def first_fault() -> list[str]:
        return list(itertools.islice(all_points(), 1))

    return in_background(first_fault).result(25)


def put(first: int) -> Call:
    return lambda queue: queue.produce(first, timeout=0)


def put_many(first: int) -> Call:
    return lambda queue: queue.produce_many(range(first, first + 3), timeout=0)


def put_in_time(first: int) -> Call:
    return lambda queue: queue.produce_many(range(first, first + 3), timeout=0.004)


def put_several(first: int) -> Call:
    def call(queue: Bridge) -> None:
        for item in range(first, first + 4):
            queue.produce(item, timeout=0)

    return call


def put_on_loop(first: int) -> Call:
    def call(queue: Bridge) -> None:
        async def on_loop() -> None:
            queue._queue.produce_nowait(first)
            queue._queue.produce_nowait(first + 1)

        asyncio.run_coroutine_threadsafe(on_loop(), queue._loop).result(10)

    return call


def look(queue: Bridge) -> None:
    check_accounts(queue._queue)


OUTER = {
    "produce": put_several(100),
    "produce_many": put_many(100),
    "produce_many in time": put_in_time(100),
}
INNER = {
    "produce": put(200),
    "produce_many": put_many(200),
    "on the loop": put_on_loop(200),
    "stats": look,
}


@pytest.mark.parametrize("when_full", [WhenFull.WAIT, WhenFull.DROP_OLDEST])
@pytest.mark.parametrize("outer", ["produce", "produce_many"])
@pytest.mark.parametrize("inner", INNER)
def test_a_put_that_is_suspended(inner: str, outer: str, when_full: WhenFull) -> None:
    config = BatchQueueConfig[Any](buffer_size=3, when_full=when_full)
    with LoopThread() as loop_thread:

        def attempt(at: int) -> Interruption:
            with Scene(loop_thread, config, at) as scene:
                scene.stall()
                interruption = scene.play(OUTER[outer], INNER[inner])
                scene.end()
                return interruption

        assert sweep(attempt) == []


@pytest.mark.parametrize("outer", OUTER)
def test_a_put_that_is_suspended_while_the_loop_takes(outer: str) -> None:
    """The handler lets go at that moment, and the queue is empty before and after."""
    config = BatchQueueConfig[Any](buffer_size=2)
    with LoopThread() as loop_thread:

        def attempt(at: int) -> Interruption:
            with Scene(loop_thread, config, at) as scene:
                scene.stall()

                def let_go(queue: Bridge) -> None:
                    scene.handler.gate.set()
                    with contextlib.suppress(AssertionError):
                        wait_until(
                            lambda: queue._queue.stats().in_flight == 0, patience=LET_IN
                        )

                interruption = scene.play(OUTER[outer], let_go)
                scene.end()
                return interruption

        assert sweep(attempt) == []


@pytest.mark.parametrize("outer", OUTER)
def test_a_put_that_is_suspended_while_the_queue_closes(outer: str) -> None:
    """True for exactly what is handled: neither lost, nor handled although refused."""
    config = BatchQueueConfig[Any](buffer_size=3)
    with LoopThread() as loop_thread:

        def attempt(at: int) -> Interruption:
            with Scene(loop_thread, config, at) as scene:
                scene.stall()
                scene.handler.gate.set()
                accepted: list[int] = [0]

                def count(queue: Bridge) -> None:
                    if outer == "produce":
                        accepted.extend(
                            item for item in range(100, 104) if queue.produce(item, 0)
                        )
                    else:
                        number = queue.produce_many(range(100, 103), 0.004)
                        accepted.extend(range(100, 100 + number))

                interruption = scene.play(count, lambda queue: queue.shutdown(10))
                scene.queue.shutdown(10)
                assert scene.handler.handled == accepted, scene.where
                check_settled(scene.queue)
                return interruption

        assert sweep(attempt) == []


@pytest.mark.parametrize("when_full", list(WhenFull))
@pytest.mark.parametrize("inner", ["produce", "produce_many"])
def test_a_look_at_the_stats_that_is_suspended(inner: str, when_full: WhenFull) -> None:
    """What is collected must be of one moment."""
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(1), buffer_size=2, when_full=when_full
    )
    with LoopThread() as loop_thread:

        def attempt(at: int) -> Interruption:
            with Scene(loop_thread, config, at) as scene:
                scene.stall()
                scene.queue.produce(1)
                scene.queue.produce(2)
                interruption = scene.play(look, INNER[inner])
                scene.end()
                return interruption

        assert sweep(attempt) == []


class Fresh: ...


def test_a_new_types_first_item_that_is_suspended_while_its_handler_comes() -> None:
    with LoopThread() as loop_thread:

        def attempt(at: int) -> Interruption:
            with Scene(loop_thread, BatchQueueConfig(), at) as scene:
                own = Gated()

                def first(queue: Bridge) -> None:
                    assert queue.produce(Fresh())

                interruption = scene.play(first, lambda q: q.add_handler(Fresh, own))
                if interruption.has_acted:
                    assert scene.queue.produce_many([Fresh(), Fresh()]) == 2
                assert scene.queue.shutdown(10) == []
                # The first one may have been too early for its handler; no later one.
                stats = check_settled(scene.queue)
                assert stats.unhandled <= 1, scene.where
                return interruption

        assert sweep(attempt) == []
