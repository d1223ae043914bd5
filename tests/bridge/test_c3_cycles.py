"""C3's cycles over threads: handlers in threads that wait for each other's queues."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DrainTaskPolicy,
    LoopThread,
    SharedDrainTasks,
    SyncBatchQueue,
    WouldDeadlock,
    in_thread,
)
from tests.bridge.background import PATIENCE, wait_until
from tests.support.oracle import check_settled

Bridge = SyncBatchQueue[Any]
Act = Callable[[Bridge], object]
End = Callable[[LoopThread], None]


def small(**settings: Any) -> BatchQueueConfig[Any]:  # noqa: ANN401
    return BatchQueueConfig[Any](buffer_size=2, **settings)


def produce(queue: Bridge) -> object:
    return queue.produce_many(range(5))


def flush(queue: Bridge) -> object:
    queue.flush()
    return None


@pytest.mark.parametrize("act", [produce, flush])
@pytest.mark.parametrize("length", [2, 3])
def test_handlers_in_threads_that_wait_in_a_circle(
    loop_thread: LoopThread, act: Act, length: int
) -> None:
    outcomes: list[str] = []
    queues: list[Bridge] = []
    together = threading.Barrier(length)

    def handler(number: int) -> Callable[[list[Any]], None]:
        def consume(batch: list[Any]) -> None:
            if "go" not in batch:
                return
            following = queues[(number + 1) % length]
            together.wait(10)
            try:
                # For a flush to wait for.
                following.produce(0, timeout=0)
                act(following)
            except WouldDeadlock:
                outcomes.append("refused")
            else:
                outcomes.append("went on")

        return consume

    for number in range(length):
        config = small(consumer=in_thread(handler(number)))
        queues.append(loop_thread.open(f"q{number}", config))
    for queue in queues:
        assert queue.produce("go")
    wait_until(lambda: len(outcomes) == length)
    assert "refused" in outcomes
    for queue in queues:
        queue.shutdown(10)
        check_settled(queue)


def test_two_queues_on_two_loops() -> None:
    outcomes: list[str] = []
    together = threading.Barrier(2)
    queues: list[Bridge] = []

    def handler(number: int) -> Callable[[list[Any]], None]:
        def consume(batch: list[Any]) -> None:
            if "go" not in batch:
                return
            together.wait(10)
            try:
                queues[1 - number].produce_many(range(9))
            except WouldDeadlock:
                outcomes.append("refused")
            else:
                outcomes.append("went on")

        return consume

    with LoopThread("one") as one, LoopThread("two") as two:
        for number, loop_thread in enumerate((one, two)):
            config = small(consumer=in_thread(handler(number)))
            queues.append(loop_thread.open(f"q{number}", config))
        for queue in queues:
            assert queue.produce("go")
        wait_until(lambda: len(outcomes) == 2)
        assert "refused" in outcomes
    for queue in queues:
        check_settled(queue)


def stop(loop_thread: LoopThread) -> None:
    loop_thread.stop()


def leave(loop_thread: LoopThread) -> None:
    loop_thread.__exit__(None, None, None)


@pytest.mark.parametrize("end", [stop, leave])
def test_handlers_that_stop_each_others_loops(end: End) -> None:
    """One is refused, and both loops end; each waited for the other's deadline."""
    outcomes: list[str] = []
    together = threading.Barrier(2)
    threads = [LoopThread(name, shutdown_timeout=None) for name in ("one", "two")]
    queues: list[Bridge] = []

    def handler(number: int) -> Callable[[list[Any]], None]:
        def consume(batch: list[Any]) -> None:
            together.wait(PATIENCE)
            try:
                end(threads[1 - number])
            except WouldDeadlock:
                outcomes.append("refused")
            else:
                outcomes.append("went on")

        return consume

    for number, loop_thread in enumerate(threads):
        config = small(consumer=in_thread(handler(number)))
        queues.append(loop_thread.start().open(f"q{number}", config))
    for queue in queues:
        assert queue.produce("go")
    wait_until(lambda: len(outcomes) == 2)
    assert sorted(outcomes) == ["refused", "went on"]
    for loop_thread in threads:
        loop_thread.stop()
    for queue in queues:
        check_settled(queue)
        assert queue.stats().handled == 1


def test_a_handler_that_stops_a_loop_which_needs_it_not_is_not_refused() -> None:
    left: list[Any] = []
    with LoopThread("one") as one:
        other = LoopThread("two").start()
        last = other.open("last", small(consumer=in_thread(lambda _: None)))

        def consume(batch: list[Any]) -> None:
            last.produce_many(batch)
            left.append(other.stop())

        queue = one.open("first", small(consumer=in_thread(consume)))
        queue.produce(1)
        queue.flush(PATIENCE)
    assert left == [{"last": []}]
    assert (last.stats().handled, queue.stats().handled) == (1, 1)


def test_a_chain_of_threads_on_one_permit_goes_on(loop_thread: LoopThread) -> None:
    """A thread that waits lends its drain task's permit, and has it back then."""
    shared = SharedDrainTasks("io", DrainTaskPolicy.fixed(1))
    received: list[int] = []
    inside: list[int] = []
    most: list[int] = []

    def runs(count: int) -> None:
        inside.extend([1] * count) if count > 0 else inside.pop()
        most.append(len(inside))

    def last(batch: list[int]) -> None:
        runs(1)
        received.extend(batch)
        runs(-1)

    def pass_on(to: Bridge, verb: str) -> Callable[[list[int]], None]:
        def consume(batch: list[int]) -> None:
            runs(1)
            for item in batch:
                runs(-1)
                assert to.produce(item)
                if verb == "flush":
                    to.flush()
                runs(1)
            runs(-1)

        return consume

    def config(consumer: Any) -> BatchQueueConfig[Any]:  # noqa: ANN401
        return BatchQueueConfig[Any](
            buffer_size=1, consumer=in_thread(consumer), drain_tasks=shared
        )

    c: Bridge = loop_thread.open("c", config(last))
    b: Bridge = loop_thread.open("b", config(pass_on(c, "produce")))
    a: Bridge = loop_thread.open("a", config(pass_on(b, "flush")))
    assert a.produce_many(range(30)) == 30
    for queue in (a, b, c):
        queue.flush(10)
    assert received == list(range(30))
    assert max(most) == 1


def test_a_lent_permit_of_another_loop() -> None:
    """The queue that is waited for lives on another loop than the permit."""
    shared = SharedDrainTasks("io", DrainTaskPolicy.fixed(1))
    received: list[int] = []
    with LoopThread("one") as one, LoopThread("two") as two:
        last: Bridge = one.open(
            "last", small(consumer=received.extend, drain_tasks=shared)
        )

        async def to_last(batch: list[int]) -> None:
            await asyncio.to_thread(last.produce_many, batch)

        middle: Bridge = two.open("middle", small(consumer=to_last))
        # On the loop of `two`, in the handler's context.
        on_two = middle._queue.produce

        async def to_middle(batch: list[int]) -> None:
            loop = middle._loop
            for item in batch:
                call = asyncio.run_coroutine_threadsafe(on_two(item), loop)
                assert await asyncio.wrap_future(call)

        first: Bridge = one.open(
            "first", BatchQueueConfig(consumer=to_middle, drain_tasks=shared)
        )
        assert first.produce_many(range(30)) == 30
        for queue in (first, middle, last):
            queue.flush(10)
    assert received == list(range(30))
