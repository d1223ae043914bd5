"""G1: many puts cost one wake-up of the loop, and no wake-up is lost."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    PartitionSelector,
    SyncBatchQueue,
    by_type,
    fair_by,
    round_robin,
)
from batchqueue_async._bridge.thread_ingress import ThreadWaiter
from batchqueue_async._engine.partitions.loop_waker import LoopWaker
from batchqueue_async._threads import dead_loop_watchdog
from tests.bridge.background import Stopwatch, answers, in_background, until, wait_until
from tests.bridge.gated import Gated, partition_of
from tests.support.wake_ups import WakeUps

pytestmark = pytest.mark.real_time

Bridge = SyncBatchQueue[Any]


def one_by_one(bridge: Bridge) -> int:
    return sum(bridge.produce(item) for item in MIXED)


def many(bridge: Bridge) -> int:
    return bridge.produce_many(MIXED)


def in_small_parts(bridge: Bridge) -> int:
    parts = (MIXED[at : at + 7] for at in range(0, len(MIXED), 7))
    return sum(map(bridge.produce_many, parts))


MIXED: list[Any] = [n if n % 2 else str(n) for n in range(500)]


@pytest.mark.parametrize("selector", [by_type, round_robin, lambda _item, n: n - 1])
@pytest.mark.parametrize("put", [one_by_one, many, in_small_parts])
@pytest.mark.parametrize("threads", [1, 4])
async def test_a_burst_costs_one_wake_up(
    selector: PartitionSelector[Any],
    put: Callable[[Bridge], int],
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = Gated()
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(3), selector=selector
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(object, handler)
        bridge = SyncBatchQueue(queue)
        counter = WakeUps(monkeypatch)
        # The loop is busy meanwhile: that is what makes it a burst.
        assert answers(in_background(put, bridge) for _ in range(threads)) == (
            [len(MIXED)] * threads
        )
        assert counter.count == 1
        await queue.flush()
    assert len(handler.handled) == len(MIXED) * threads


async def test_each_burst_wakes_the_loop_again(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Gated()
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
        bridge = SyncBatchQueue(queue)
        counter = WakeUps(monkeypatch)
        for burst in range(5):
            answers([in_background(bridge.produce_many, range(10))])
            expected = 10 * (burst + 1)
            await until(
                lambda expected=expected: len(handler.handled) == expected  # type: ignore[misc]
            )
        assert counter.count == 5


SETTINGS: dict[str, Any] = {
    "plain": {},
    "sized": {"size_of": lambda _: 1, "max_batch_bytes": 5},
    "lingering": {"size_of": lambda _: 1, "max_batch_bytes": 5, "linger": 0.01},
}


@pytest.mark.parametrize("kind", SETTINGS)
async def test_what_comes_behind_items_that_a_batch_has_left_wakes_nobody(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who took the batch looks again before it sleeps."""
    handler = Gated(is_open=False)
    config = BatchQueueConfig[int](
        consumer=handler, **{"max_batch": 5} | SETTINGS[kind]
    )
    async with BatchQueue("q", config) as queue:
        bridge = SyncBatchQueue(queue)
        await queue.produce_many(range(10))
        await until(lambda: bool(handler.batches))
        counter = WakeUps(monkeypatch)

        def one_at_a_time() -> int:
            offered = sum(map(bool, map(bridge.offer, range(10, 20))))
            return offered + sum(map(bridge.produce, range(20, 30)))

        assert answers([in_background(one_at_a_time)]) == [20]
        assert counter.count == 0
        handler.gate.set()
        await queue.flush()
    assert sorted(handler.handled) == [*range(30)]


LOOKED_AT: dict[str, Any] = {
    "sized": {"size_of": lambda _: 1, "buffer_bytes": 100},
    "fair": {"selector": fair_by(lambda item: "key")},
}


@pytest.mark.parametrize("kind", LOOKED_AT)
async def test_the_loop_is_told_once_of_all_that_comes_before_it_looks(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still meanwhile: who tells it of each item keeps a note of each."""
    handler, told = Gated(), list[object]()
    post: Callable[..., None] = LoopWaker.post

    def post_and_note(self: LoopWaker[int], partition: Any) -> None:  # noqa: ANN401
        told.append(partition)
        post(self, partition)

    monkeypatch.setattr(LoopWaker, "post", post_and_note)
    config = BatchQueueConfig[int](consumer=handler, **LOOKED_AT[kind])
    async with BatchQueue("q", config) as queue:
        bridge = SyncBatchQueue(queue)

        def one_by_one() -> int:
            return sum(map(bridge.produce, range(20)))

        for burst in (1, 2):
            assert answers([in_background(one_by_one)]) == [20]
            assert len(told) == burst
            await until(lambda burst=burst: len(handler.handled) == 20 * burst)  # type: ignore[misc]


async def test_what_a_refused_item_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full partition, and a producer that keeps trying: the loop knows already."""
    handler = Gated(is_open=False)
    config = BatchQueueConfig[int](buffer_size=1, consumer=handler)
    async with BatchQueue("q", config) as queue:
        bridge = SyncBatchQueue(queue)
        counter = WakeUps(monkeypatch)
        tries = 100

        def insist() -> int:
            return sum(bridge.produce(item, timeout=0) for item in range(tries))

        assert answers([in_background(insist)]) == [1]
        assert counter.count <= 2
        handler.gate.set()


def test_a_lone_item_is_handled_at_once(loop_thread: LoopThread) -> None:
    """Nobody flushes, nothing follows: the wake-up alone must do."""
    handler = Gated()
    queue: Bridge = loop_thread.open("q", None, {int: handler})
    numbers = itertools.count(1)
    for number in itertools.islice(numbers, 50):
        assert queue.produce(number)
        wait_until(lambda number=number: len(handler.handled) == number)  # type: ignore[misc]


@pytest.mark.usefixtures("eager_switches")
def test_no_wake_up_is_lost_between_threads(loop_thread: LoopThread) -> None:
    """Each waits for its own item, which nobody else's wake-up is meant for."""
    handler = Gated()
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(2), buffer_size=3)
    queue: Bridge = loop_thread.open("q", config, {int: handler, str: handler})
    seen: set[Any] = set()

    class Seen:
        async def consume(self, batch: list[Any]) -> None:
            seen.update(batch)

    queue.add_handler(int, Seen())
    queue.add_handler(str, Seen())

    def lockstep(kind: type, first: int) -> None:
        for number in range(first, first + 150):
            item = kind(number)
            assert queue.produce(item)
            wait_until(lambda item=item: item in seen)  # type: ignore[misc]

    calls = [
        in_background(lockstep, kind, 1000 * n) for n in range(3) for kind in (int, str)
    ]
    answers(calls)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_who_is_woken_before_its_items_are_counted_sleeps_no_longer(
    loop_thread: LoopThread, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but one would look by themselves in a minute: the wake-up alone must do."""
    monkeypatch.setattr(dead_loop_watchdog, "_SHORT", 60.0)
    monkeypatch.setattr(dead_loop_watchdog, "_LONG", 60.0)
    wake = ThreadWaiter.wake

    def wake_and_let_it_look(waiter: ThreadWaiter) -> None:
        wake(waiter)
        time.sleep(0.02)

    monkeypatch.setattr(ThreadWaiter, "wake", wake_and_let_it_look)
    handler = Gated(is_open=False)
    config = BatchQueueConfig[Any](buffer_size=2)
    bridge: Bridge = loop_thread.open("q", config, {int: handler})
    assert bridge.produce(0)
    assert handler.entered.wait(10)
    assert bridge.produce_many([1, 2]) == 2
    calls = [in_background(bridge.produce_many, range(count)) for _ in range(3)]
    wait_until(lambda: len(partition_of(bridge).line) == 3)

    handler.gate.set()

    assert answers(calls) == [count] * 3


def numbers_of(count: int) -> Iterator[int]:
    yield from range(count)


@pytest.mark.parametrize("linger", [0.05, 30.0])
def test_an_item_from_a_thread_lingers_no_longer_than_it_may(
    loop_thread: LoopThread, linger: float
) -> None:
    """A full batch ends it at once, whichever call completed the batch."""
    handler = Gated()
    config = BatchQueueConfig[int](linger=linger, max_batch=10, consumer=handler)
    queue: SyncBatchQueue[int] = loop_thread.open("q", config)
    if linger < 1:
        with Stopwatch() as watch:
            assert queue.produce(1)
            wait_until(lambda: handler.handled == [1])
        # uvloop's clock ticks in milliseconds.
        assert watch.seconds >= linger * 0.9
        return
    for item in range(10):
        assert queue.produce(item)
    wait_until(lambda: len(handler.handled) == 10)
    assert queue.produce_many(numbers_of(10)) == 10
    wait_until(lambda: len(handler.handled) == 20)
    assert queue.produce_many(numbers_of(9)) == 9
    assert queue.produce(9)
    wait_until(lambda: len(handler.handled) == 30)
    assert {len(each) for each in handler.batches} == {10}
