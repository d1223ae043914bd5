"""G1: no call hangs for ever on a loop that is stopped, blocked or closed."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    LoopThread,
)
from batchqueue_async._threads.dead_loop_watchdog import LoopWatchdog
from tests.bridge.background import (
    answer_of,
    answers,
    in_background,
    until,
)
from tests.bridge.dead import assert_dead, error_of
from tests.bridge.gated import Gated, partition_of
from tests.bridge.runners import Factory, each_loop, stopped_queue
from tests.support.oracle import check_accounts

SMALL = BatchQueueConfig[Any](buffer_size=2)

Records = list[logging.LogRecord]


@each_loop
def test_a_stopped_loop_is_noticed(factory: Factory) -> None:
    handler = Gated(is_open=False)
    with stopped_queue(factory, handler, SMALL) as (runner, queue):
        assert queue.produce_many([1, 2]) == 2
        calls: tuple[Callable[[], object], ...] = (
            lambda: queue.produce(3),
            lambda: queue.produce(3, timeout=30),
            lambda: queue.produce_many([3, 4, 5]),
            queue.flush,
            lambda: queue.add_handler(str, print),
            lambda: queue.remove_handler(str),
        )
        assert_dead([in_background(error_of, call) for call in calls])
        assert len(partition_of(queue).line) == 0
        # It runs again: what was accepted meanwhile is handled, and nothing else.
        handler.gate.set()
        runner.run(queue._queue.flush(10))
        assert handler.handled == [1, 2]
        assert check_accounts(queue).accepted == 2


@each_loop
def test_a_loop_that_stops_while_threads_wait_is_noticed(factory: Factory) -> None:
    handler = Gated(is_open=False)
    with stopped_queue(factory, handler, SMALL) as (runner, queue):

        async def fill_and_block() -> list[Any]:
            assert await queue._queue.produce(0)
            await until(lambda: handler.batches)
            assert await queue._queue.produce_many([1, 2]) == 2
            blocked = [
                in_background(error_of, lambda: queue.produce(3)),
                in_background(error_of, lambda: queue.produce_many([4, 5])),
                in_background(error_of, queue.flush),
            ]
            await until(lambda: len(partition_of(queue).line) == 2)
            await asyncio.sleep(0.15)
            return blocked

        assert_dead(runner.run(fill_and_block()))
        assert len(partition_of(queue).line) == 0


@each_loop
def test_a_stopped_loop_still_accepts_what_there_is_room_for(factory: Factory) -> None:
    handler = Gated()
    with stopped_queue(factory, handler, SMALL) as (runner, queue):
        assert queue.produce(1)
        assert queue.produce(2, timeout=0)
        assert queue.produce(3, timeout=0) is False
        assert queue.produce(3, timeout=0.05) is False

        async def turn() -> None:
            await until(lambda: len(handler.handled) == 2)

        runner.run(turn())
        assert handler.handled == [1, 2]


@each_loop
def test_stats_of_a_stopped_loop_are_taken_from_outside(factory: Factory) -> None:
    with stopped_queue(factory, Gated(), SMALL) as (_, queue):
        assert queue.produce(1)
        assert check_accounts(queue).waiting == 1


@pytest.mark.real_time
async def test_a_loop_that_a_handler_blocks_is_noticed() -> None:
    """And the loop has nothing of the refused items when it goes on."""
    held = threading.Event()
    entered = threading.Event()
    handled: list[int] = []

    def block(batch: list[int]) -> None:
        entered.set()
        held.wait(10)
        handled.extend(batch)

    with LoopThread() as loop_thread:
        queue = loop_thread.open("q", SMALL, {int: block})
        assert queue.produce(0)
        assert entered.wait(10)
        assert queue.produce_many([1, 2]) == 2
        calls = [
            in_background(error_of, call)
            for call in (
                lambda: queue.produce(3),
                lambda: queue.produce(4),
                lambda: queue.produce_many([5, 6]),
                queue.flush,
            )
        ]
        for error in [await answer_of(each) for each in calls]:
            assert type(error) is BatchQueueError
        held.set()
        await asyncio.to_thread(queue.flush, 10)
        assert handled == [0, 1, 2]


@each_loop
def test_a_wait_that_is_served_at_the_last_moment_is_no_error(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `produce` that raised did not accept: so one that did must not raise.

    The loop comes back, and serves the line, when the thread has looked at its place
    for the last time and is about to raise.
    """
    handler = Gated()
    with stopped_queue(factory, handler, BatchQueueConfig(buffer_size=1)) as (
        runner,
        queue,
    ):
        assert queue.produce(1)
        at_the_end, served = threading.Event(), threading.Event()
        ask = LoopWatchdog._ask

        def ask_late(watchdog: LoopWatchdog) -> None:
            try:
                ask(watchdog)
            except BatchQueueError:
                at_the_end.set()
                served.wait(10)
                raise

        monkeypatch.setattr(LoopWatchdog, "_ask", ask_late)
        answers_of_call: list[bool] = []
        call = in_background(error_of, lambda: answers_of_call.append(queue.produce(2)))
        assert at_the_end.wait(10)

        async def serve() -> None:
            line = partition_of(queue).line
            await until(lambda: len(handler.handled) == 2 or not len(line))

        runner.run(serve())
        served.set()
        error = call.result(10)
        runner.run(queue._queue.flush(10))
        accepted = handler.handled == [1, 2]
        assert answers_of_call == ([True] if accepted else [])
        assert (error is None) == accepted


@each_loop
def test_a_queue_that_is_closed_stays_usable_on_a_stopped_loop(
    factory: Factory,
) -> None:
    with stopped_queue(factory, Gated(), SMALL) as (runner, queue):
        runner.run(queue._queue.shutdown())
        assert queue.produce(1) is False
        assert queue.produce(1, timeout=5) is False
        assert queue.produce_many([1, 2]) == 0
        lists: list[list[Any]] = []
        error = error_of(lambda: lists.append(queue.shutdown(10)))
        assert (error, lists) == (None, [[]])


def test_a_busy_loop_is_not_dead(loop_kind: str) -> None:
    """Handlers that block it for a moment each, for more than half a second."""
    assert loop_kind

    async def consume(_: list[int]) -> None:
        time.sleep(0.15)  # noqa: ASYNC251 - it is to block

    config = BatchQueueConfig[int](buffer_size=1, consumer=consume)
    with LoopThread() as loop_thread:
        queue = loop_thread.open("q", config)
        threads = [in_background(queue.produce_many, [n, n]) for n in range(3)]
        assert answers(threads) == [2, 2, 2]
        queue.flush()
