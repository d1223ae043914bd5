"""Whatever leaves `produce_many` says how many items were accepted, exactly."""

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    WouldDeadlock,
    round_robin,
)
from batchqueue_async import in_thread as run_in_thread
from tests.bridge.background import in_background
from tests.bridge.gated import Gated, stall
from tests.bridge.interruptions import Interruption, ctrl_c

Bridge = SyncBatchQueue[Any]

CONFIGS = {
    "room": BatchQueueConfig[Any](buffer_size=50),
    "several partitions": BatchQueueConfig[Any](
        buffer_size=50, partitions=PartitionPolicy.fixed(2), selector=round_robin
    ),
    "little room": BatchQueueConfig[Any](buffer_size=2),
}


def error_of(call: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - each test's own
        call()
    return caught.value


def accepted_by(error: BaseException) -> int:
    return error.accepted  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    "config", [pytest.param(each, id=name) for name, each in CONFIGS.items()]
)
def test_an_interrupt_at_any_point_carries_the_exact_number(
    loop_thread: LoopThread, config: BatchQueueConfig[Any]
) -> None:
    def sweep() -> int:
        for at in range(1, 2000):
            # Point 0 is where the call begins, before anything of it can run.
            handler = Gated(is_open=config.buffer_size > 2)
            queue: Bridge = loop_thread.open(f"q{at}", config, {int: handler})
            interruption = Interruption(at, ctrl_c)
            try:
                with interruption:
                    queue.produce_many(iter(range(7)), timeout=0.002)
            except KeyboardInterrupt as error:
                told = getattr(error, "accepted", None)
                if told is None:
                    # As it returned: nobody has a number then.
                    assert "__exit__" in str(interruption.where) or at > 5
            else:
                told = None
            accepted = queue._queue.stats().accepted
            handler.gate.set()
            if told is not None:
                assert told == accepted, interruption.where
            queue.shutdown(10)
            if not interruption.has_acted:
                return at
        return 2000

    assert 20 < in_background(sweep).result(50) < 2000


def test_an_error_of_the_iterable_carries_it(loop_thread: LoopThread) -> None:
    def items() -> Iterator[int]:
        yield from range(12_000)
        raise LookupError

    config = BatchQueueConfig[Any](buffer_size=5_000)
    queue: Bridge = loop_thread.open("q", config, {int: Gated()})
    error = error_of(lambda: queue.produce_many(items()))
    assert (type(error), accepted_by(error)) == (LookupError, 12_000)


def test_it_is_this_calls_number_not_that_of_a_call_inside(
    loop_thread: LoopThread,
) -> None:
    """An iterable that itself produces in bulk, elsewhere, and fails there."""

    def fail() -> Iterator[int]:
        yield from range(7)
        raise LookupError

    def items() -> Iterator[int]:
        yield 1
        inner.produce_many(fail())

    inner: Bridge = loop_thread.open("inner", None, {int: Gated()})
    outer: Bridge = loop_thread.open("outer", None, {int: Gated()})
    assert accepted_by(error_of(lambda: outer.produce_many(items()))) == 1


def test_an_error_of_the_selector_carries_it(loop_thread: LoopThread) -> None:
    def choose(item: int, partitions: int) -> int:
        if item == 10_005:
            raise LookupError
        return item % partitions

    config = BatchQueueConfig[Any](
        buffer_size=20_000, partitions=PartitionPolicy.fixed(2), selector=choose
    )
    queue: Bridge = loop_thread.open("q", config, {int: Gated()})
    error = error_of(lambda: queue.produce_many(range(20_000)))
    assert (type(error), accepted_by(error)) == (LookupError, 10_000)
    assert queue.stats().accepted == 10_000


def test_a_dead_loop_carries_it(loop_kind: str) -> None:
    assert loop_kind
    held, entered = threading.Event(), threading.Event()

    def block(_: list[int]) -> None:
        entered.set()
        held.wait(10)

    with LoopThread(patience=0.5) as loop_thread:
        config = BatchQueueConfig[Any](buffer_size=3)
        queue: Bridge = loop_thread.open("q", config, {int: block})
        assert queue.produce(0)
        assert entered.wait(10)
        error = error_of(lambda: queue.produce_many(range(10)))
        held.set()
        assert isinstance(error, BatchQueueError)
        assert accepted_by(error) == 3
        queue.flush(10)


def test_a_deadlock_carries_it(loop_thread: LoopThread) -> None:
    errors: list[BaseException] = []

    def feed(_: list[int]) -> None:
        if not errors:
            errors.append(error_of(lambda: queue.produce_many(range(10))))

    config = BatchQueueConfig[Any](buffer_size=3)
    queue: Bridge = loop_thread.open("q", config, {int: run_in_thread(feed)})
    assert queue.produce(0)
    queue.flush(10)
    assert isinstance(errors[0], WouldDeadlock)
    assert accepted_by(errors[0]) == 3


def test_a_signal_in_a_wait_carries_it(loop_thread: LoopThread) -> None:
    stalled = stall(loop_thread, buffer_size=3)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    error = error_of(lambda: stalled.sync_queue.produce_many(range(10)))
    timer.join()
    assert (type(error), accepted_by(error)) == (KeyboardInterrupt, 0)
    stalled.release()


@pytest.mark.parametrize("timeout", ["1", float("nan"), -1.0])
def test_a_refused_call_carries_nought(loop_thread: LoopThread, timeout: Any) -> None:  # noqa: ANN401
    queue: Bridge = loop_thread.open("q", None, {int: Gated()})
    error = error_of(lambda: queue.produce_many([1], timeout=timeout))
    assert accepted_by(error) == 0
