"""G1: a time limit is kept, and what was refused leaves nothing behind."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from tests.bridge.background import (
    PATIENCE,
    Stopwatch,
    answers,
    in_background,
    wait_until,
)
from tests.bridge.gated import Gated, partition_of, stall
from tests.support.faked_time import fake_monotonic
from tests.support.oracle import check_accounts, check_settled


class First: ...


class Second(First): ...


@pytest.mark.parametrize("when_full", list(WhenFull))
@pytest.mark.parametrize("buffer_size", [1, 2, 100])
@pytest.mark.parametrize("timeout", [0, 1e-9, 0.05])
def test_hardly_any_time_is_enough_where_there_is_room(
    loop_thread: LoopThread, when_full: WhenFull, buffer_size: int, timeout: float
) -> None:
    """Also for the first item of a type, and for one without a handler of its own."""
    handler = Gated(is_open=False)
    config = BatchQueueConfig[Any](
        buffer_size=buffer_size,
        when_full=when_full,
        partitions=PartitionPolicy.adaptive(),
    )
    queue: SyncBatchQueue[Any] = loop_thread.open("q", config, {First: handler})
    try:
        assert queue.produce(Second(), timeout=timeout)
        assert handler.entered.wait(10)
        for _ in range(buffer_size):
            assert queue.produce(First(), timeout=timeout)
        assert check_accounts(queue).waiting == buffer_size
    finally:
        handler.gate.set()


@pytest.mark.parametrize("timeout", [0, 1e-9, 0.001, 0.05, 0.25])
def test_a_full_partition_refuses_after_the_time(
    loop_thread: LoopThread, timeout: float
) -> None:
    stalled = stall(loop_thread)
    try:
        with Stopwatch() as one:
            assert stalled.sync_queue.produce(99, timeout=timeout) is False
        with Stopwatch() as many:
            assert stalled.sync_queue.produce_many([98, 99], timeout=timeout) == 0
        assert one.seconds >= timeout - 0.01
        assert many.seconds >= timeout - 0.01
        stats = check_accounts(stalled.sync_queue)
        assert (stats.rejected, stats.accepted) == (3, 3)
    finally:
        stalled.release()
    stalled.sync_queue.flush(10)
    assert stalled.handler.handled == stalled.first_items


def test_a_clock_that_a_test_fakes_ends_no_wait(
    loop_thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled = stall(loop_thread)
    fake_monotonic(monkeypatch)
    call = in_background(stalled.sync_queue.produce, 99, timeout=PATIENCE)
    wait_until(lambda: stalled.line_length == 1)
    stalled.release()
    assert call.result(PATIENCE)
    stalled.sync_queue.flush(PATIENCE)
    assert stalled.handler.handled == [*stalled.first_items, 99]


def test_who_gave_up_leaves_no_place_in_line(loop_thread: LoopThread) -> None:
    stalled = stall(loop_thread, buffer_size=3)

    def give_up(number: int) -> int:
        tries = [0.001 * (n % 4) for n in range(40)]
        return sum(stalled.sync_queue.produce(number, timeout=each) for each in tries)

    refused = [in_background(give_up, 100 + number) for number in range(8)]
    assert answers(refused) == [0] * 8
    assert stalled.line_length == 0
    assert partition_of(stalled.sync_queue).line.reserved == 0
    assert check_accounts(stalled.sync_queue).rejected == 8 * 40
    late = in_background(stalled.sync_queue.produce, 7)
    stalled.release()
    assert late.result(10)
    stalled.sync_queue.flush(10)
    assert stalled.handler.handled == [*stalled.first_items, 7]


def test_who_gave_up_does_not_hold_up_those_behind(loop_thread: LoopThread) -> None:
    stalled = stall(loop_thread, buffer_size=1)
    first = in_background(stalled.sync_queue.produce_many, [10, 11], 0.15)
    stalled.wait_for_line(1)
    second = in_background(stalled.sync_queue.produce, 20)
    # On a slow machine the first one may be gone before the second one comes.
    wait_until(lambda: stalled.line_length == 2 or first.done())
    assert first.result(10) == 0
    stalled.wait_for_line(1)
    stalled.release()
    assert second.result(10)
    stalled.sync_queue.flush(10)
    assert stalled.handler.handled == [0, 1, 20]


def test_produce_many_returns_what_was_accepted_in_time(
    loop_thread: LoopThread,
) -> None:
    stalled = stall(loop_thread, buffer_size=4)
    waiting = in_background(stalled.sync_queue.produce_many, iter(range(10, 40)), 1.0)
    stalled.wait_for_line(1)
    stalled.handler.let_one_batch_pass()
    assert waiting.result(10) == 4
    stalled.release()
    stalled.sync_queue.flush(10)
    assert stalled.handler.handled == [*stalled.first_items, 10, 11, 12, 13]
    assert check_settled(stalled.sync_queue).accepted == 5 + 4


def test_endless_items_end_with_the_time(loop_thread: LoopThread) -> None:
    stalled = stall(loop_thread, buffer_size=2)
    assert stalled.sync_queue.produce_many(itertools.count(), timeout=0.1) == 0
    stalled.release()


def test_items_before_an_error_of_the_iterable_are_accepted(
    loop_thread: LoopThread,
) -> None:
    def items() -> Iterator[int]:
        yield from range(12_000)
        raise LookupError

    handler = Gated()
    config = BatchQueueConfig[int](buffer_size=5_000)
    queue: SyncBatchQueue[int] = loop_thread.open("q", config, {int: handler})
    with pytest.raises(LookupError):
        queue.produce_many(items())
    queue.flush(10)
    assert handler.handled == list(range(12_000))


def test_no_items_are_no_work(loop_thread: LoopThread) -> None:
    stalled = stall(loop_thread)
    assert stalled.sync_queue.produce_many([]) == 0
    assert stalled.sync_queue.produce_many(iter(()), timeout=0) == 0
    assert check_accounts(stalled.sync_queue).rejected == 0
    stalled.release()
