"""C3 through the bridge: a handler's thread is not let wait for its own drain task."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DrainTaskPolicy,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    WouldDeadlock,
    in_thread,
)
from tests.bridge.background import in_background, wait_until
from tests.bridge.gated import Gated
from tests.support.oracle import check_accounts, check_settled

Bridge = SyncBatchQueue[Any]
SMALL = BatchQueueConfig[Any](buffer_size=2)

overfilling = pytest.mark.parametrize(
    "overfill",
    [
        pytest.param(lambda queue: [queue.produce(n) for n in (1, 2, 3)], id="produce"),
        pytest.param(lambda queue: queue.produce_many([1, 2, 3]), id="produce_many"),
        pytest.param(lambda queue: queue.produce_many([1, 2, 3], 30), id="with time"),
    ],
)


@overfilling
def test_a_handler_in_a_thread(
    loop_thread: LoopThread, overfill: Callable[[Bridge], object]
) -> None:
    errors: list[BaseException] = []

    def consume(batch: list[int]) -> None:
        if batch == [0]:
            try:
                overfill(queue)
            except WouldDeadlock as error:
                errors.append(error)

    queue: Bridge = loop_thread.open("q", SMALL, {int: in_thread(consume)})
    assert queue.produce(0)
    queue.flush(10)
    assert len(errors) == 1
    # What had found room is accepted, and what had not is nowhere.
    assert queue.shutdown(10) == []
    stats = check_settled(queue)
    assert (stats.accepted, stats.handled) == (3, 3)


@overfilling
@pytest.mark.parametrize("in_a_task", [False, True])
def test_a_thread_that_an_async_handler_starts(
    loop_thread: LoopThread, overfill: Callable[[Bridge], object], *, in_a_task: bool
) -> None:
    errors: list[BaseException] = []

    async def consume(batch: list[int]) -> None:
        if batch == [0]:
            work = asyncio.to_thread(overfill, queue)
            try:
                await (asyncio.create_task(work) if in_a_task else work)
            except WouldDeadlock as error:
                errors.append(error)

    queue: Bridge = loop_thread.open("q", SMALL, {int: consume})
    assert queue.produce(0)
    queue.flush(10)
    assert len(errors) == 1
    assert queue.shutdown(10) == []
    assert check_settled(queue).handled == 3


def test_an_unhandled_refusal_fails_the_batch_alone(loop_thread: LoopThread) -> None:
    failed: list[int] = []

    def consume(batch: list[int]) -> None:
        if batch == [0]:
            queue.produce_many([1, 2, 3])

    config = BatchQueueConfig[Any](
        buffer_size=2, on_error=lambda batch, _: failed.extend(batch)
    )
    queue: Bridge = loop_thread.open("q", config, {int: in_thread(consume)})
    assert queue.produce(0)
    wait_until(lambda: check_accounts(queue).handled == 2)
    assert failed == [0]
    assert queue.shutdown(10) == []


def test_a_line_that_already_forms_is_respected(loop_thread: LoopThread) -> None:
    """Other producers wait: the handler must not wait behind them, nor overtake."""
    errors: list[BaseException] = []
    in_handler, go_on = threading.Event(), threading.Event()

    def consume(batch: list[int]) -> None:
        if 0 in batch:
            in_handler.set()
            go_on.wait(10)
            try:
                queue.produce(99)
            except WouldDeadlock as error:
                errors.append(error)

    queue: Bridge = loop_thread.open("q", SMALL, {int: in_thread(consume)})
    assert queue.produce(0)
    assert in_handler.wait(10)
    assert queue.produce_many([1, 2]) == 2
    waiting = [in_background(queue.produce, n) for n in (3, 4)]
    wait_until(lambda: len(queue._queue._parts.partitions[0].line) == 2)
    go_on.set()
    assert [each.result(10) for each in waiting] == [True, True]
    queue.flush(10)
    assert len(errors) == 1
    assert check_settled(queue).handled == 5


def test_another_drain_tasks_partition_may_be_waited_for(
    loop_thread: LoopThread,
) -> None:
    texts = Gated(is_open=False)
    produced: list[object] = []

    def consume(_: list[int]) -> None:
        produced.append(queue.produce_many(["c", "d", "e"], timeout=10))

    config = BatchQueueConfig[Any](
        buffer_size=1,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
    )
    queue: Bridge = loop_thread.open("q", config)
    queue.add_handler(int, in_thread(consume))
    queue.add_handler(str, texts)
    assert queue.produce("a")
    assert texts.entered.wait(10)
    assert queue.produce("b")
    assert queue.produce(1)
    wait_until(lambda: len(queue._queue._parts.partitions[1].line) == 1)
    assert not produced
    texts.gate.set()
    wait_until(lambda: produced == [3])
    queue.flush(10)
    assert texts.handled == ["a", "b", "c", "d", "e"]


def test_another_queue_may_be_waited_for(loop_thread: LoopThread) -> None:
    last = Gated(is_open=False)
    behind: Bridge = loop_thread.open("behind", SMALL, {int: last})

    def pass_on(batch: list[int]) -> None:
        assert behind.produce_many(batch) == len(batch)

    config = BatchQueueConfig[Any](buffer_size=50)
    queue: Bridge = loop_thread.open("q", config, {int: in_thread(pass_on)})
    assert queue.produce_many(range(50)) == 50
    wait_until(lambda: len(behind._queue._parts.partitions[0].line) == 1)
    last.gate.set()
    queue.flush(10)
    behind.flush(10)
    assert last.handled == list(range(50))


def test_a_thread_that_outlives_its_handler_may_wait(loop_thread: LoopThread) -> None:
    """The drain task is free again, so waiting for it ends."""
    returned = threading.Event()
    late: list[asyncio.Task[object]] = []
    answers: list[int] = []

    def produce_later() -> None:
        returned.wait(10)
        answers.append(queue.produce_many(range(1, 20)))

    async def consume(batch: list[int]) -> None:
        if batch == [0]:
            late.append(asyncio.create_task(asyncio.to_thread(produce_later)))

    queue: Bridge = loop_thread.open("q", SMALL, {int: consume})
    assert queue.produce(0)
    queue.flush(10)
    returned.set()
    wait_until(lambda: answers == [19])
    queue.flush(10)
    assert check_settled(queue).handled == 20


def test_no_wait_is_no_deadlock_where_there_is_room(loop_thread: LoopThread) -> None:
    answers: list[object] = []

    def consume(batch: list[int]) -> None:
        if batch == [0]:
            answers.append(queue.produce(1, timeout=0))
            answers.append(queue.produce_many([2], timeout=0))
            with contextlib.suppress(WouldDeadlock):
                # Refused either way, at once.
                answers.append(queue.produce(3, timeout=0))

    queue: Bridge = loop_thread.open("q", SMALL, {int: in_thread(consume)})
    assert queue.produce(0)
    queue.flush(10)
    assert queue.shutdown(10) == []
    assert answers in ([True, 1], [True, 1, False])
    assert check_settled(queue).handled == 3


def test_a_handlers_thread_may_shut_its_own_queue_down(loop_thread: LoopThread) -> None:
    answers: list[object] = []

    def consume(_: list[int]) -> None:
        answers.append(queue.shutdown(10))
        answers.append(queue.produce(9))

    queue: Bridge = loop_thread.open("q", SMALL, {int: in_thread(consume)})
    assert queue.produce_many([0, 1]) == 2
    wait_until(lambda: len(answers) == 2)
    assert queue.shutdown(10) == []
    assert answers == [[], False]
    assert check_settled(queue).handled == 2
