"""`LoopThread`: which loop it is, what it opens, and how it ends."""

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    DuplicateQueue,
    LoopThread,
    SyncBatchQueue,
    in_thread,
)
from tests.bridge.background import Stopwatch, answers, in_background, wait_until
from tests.bridge.gated import Gated
from tests.support.oracle import check_settled

Bridge = SyncBatchQueue[Any]


class Interrupted(BaseException): ...


def test_it_uses_uvloop_where_that_is_installed(loop_kind: str) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    threads: list[threading.Thread] = []

    def consume(_: list[int]) -> None:
        loops.append(asyncio.get_running_loop())
        threads.append(threading.current_thread())

    with LoopThread("a name") as loop_thread:
        queue: Bridge = loop_thread.open("q", None, {int: consume})
        assert queue.produce(1)
        queue.flush(10)
    assert type(loops[0]).__module__.partition(".")[0] == loop_kind
    assert threads[0].name == "a name"
    assert threads[0] is not threading.current_thread()
    assert not threads[0].is_alive()


def test_it_registers_handlers_by_type(loop_thread: LoopThread) -> None:
    integers, texts = Gated(), Gated()
    queue: Bridge = loop_thread.open("q", None, {int: integers, str: texts})
    assert queue.produce_many([1, "a", 2, "b", True]) == 5
    queue.flush(10)
    assert (integers.handled, texts.handled) == ([1, 2, True], ["a", "b"])
    assert queue.name == "q"


def test_a_queue_that_cannot_be_opened_leaves_nothing(loop_thread: LoopThread) -> None:
    with pytest.raises(TypeError):
        loop_thread.open("q", None, {int: Gated(), str: 7})  # type: ignore[dict-item]
    with pytest.raises(BatchQueueError):
        loop_thread.open("q", BatchQueueConfig(consumer=print), {int: Gated()})
    assert loop_thread.open("q", None, {int: Gated()}).produce(1)


def test_several_threads_may_open_queues(loop_thread: LoopThread) -> None:
    handler = Gated()

    def open_and_produce(number: int) -> None:
        queue: Bridge = loop_thread.open(f"q{number}", None, {int: handler})
        assert queue.produce(number)

    def open_the_same() -> bool:
        try:
            loop_thread.open("same")
        except DuplicateQueue:
            return False
        return True

    answers([in_background(open_and_produce, n) for n in range(8)])
    wait_until(lambda: sorted(handler.handled) == list(range(8)))
    assert sum(answers([in_background(open_the_same) for _ in range(8)])) == 1


def test_it_opens_queues_inside_of_its_with_block_only(loop_kind: str) -> None:
    assert loop_kind
    loop_thread = LoopThread()
    with pytest.raises(BatchQueueError):
        loop_thread.open("early")
    with loop_thread:
        loop_thread.open("q")
    with pytest.raises(BatchQueueError):
        loop_thread.open("late")


def test_it_can_be_entered_again(loop_kind: str) -> None:
    """With the same names: the queues of before are gone."""
    assert loop_kind
    handler = Gated()
    loop_thread = LoopThread()
    for number in range(3):
        with loop_thread:
            queue: Bridge = loop_thread.open("q", None, {int: handler})
            assert queue.produce(number)
    assert handler.handled == [0, 1, 2]


class Link:
    """Passes items on to the next queue, also at its end."""

    def __init__(self, name: str, closed: list[str], to: Bridge | None) -> None:
        self._name, self._closed, self._to = name, closed, to
        self.handled: list[Any] = []

    async def consume(self, batch: list[Any]) -> None:
        await asyncio.sleep(0.01)
        self.handled += batch
        if self._to is not None:
            assert await self._to._queue.produce_many(batch) == len(batch)

    async def on_close(self) -> None:
        self._closed.append(self._name)
        if self._to is not None:
            assert await self._to._queue.produce(-1)


def test_leaving_it_drains_the_last_opened_queue_first(loop_kind: str) -> None:
    assert loop_kind
    closed: list[str] = []
    with LoopThread() as loop_thread:
        sink = Link("sink", closed, None)
        last: Bridge = loop_thread.open("sink", None, {int: sink})
        middle: Bridge = loop_thread.open(
            "middle", None, {int: Link("middle", closed, last)}
        )
        first: Bridge = loop_thread.open(
            "source", None, {int: Link("source", closed, middle)}
        )
        assert first.produce_many(range(100)) == 100
    assert closed == ["source", "middle", "sink"]
    assert sorted(sink.handled) == [-1, -1, *range(100)]
    for each in (first, middle, last):
        check_settled(each)
        assert not each.is_running


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_in_the_with_block_still_drains(
    loop_kind: str, error: type[BaseException]
) -> None:
    assert loop_kind
    handler = Gated(is_open=False)

    def produce_and_fail() -> None:
        with LoopThread() as loop_thread:
            queue: Bridge = loop_thread.open("q", None, {int: handler})
            threads.extend(
                each for each in threading.enumerate() if each.name == "batchqueue"
            )
            assert queue.produce_many(range(1000)) == 1000
            threading.Timer(0.05, handler.gate.set).start()
            raise error

    threads: list[threading.Thread] = []
    with pytest.raises(error):
        produce_and_fail()
    assert handler.handled == list(range(1000))
    assert [each.is_alive() for each in threads] == [False]


def test_ctrl_c_in_the_with_block_still_drains(loop_kind: str) -> None:
    assert loop_kind
    handler = Gated()

    def produce_until_interrupted() -> None:
        with LoopThread() as loop_thread:
            queue: Bridge = loop_thread.open(
                "q", BatchQueueConfig(buffer_size=50), {int: handler}
            )
            main = threading.main_thread().ident
            assert main is not None
            timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
            timer.start()
            while True:
                assert queue.produce(len(accepted))
                accepted.append(len(accepted))

    accepted: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        produce_until_interrupted()
    # Of the item at which it was interrupted nobody knows.
    assert handler.handled in (accepted, [*accepted, len(accepted)])


def test_leftovers_are_logged_and_given_to_on_error(
    loop_kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert loop_kind
    told: list[tuple[list[int], BaseException]] = []
    config = BatchQueueConfig[Any](
        buffer_size=3, on_error=lambda batch, error: told.append((batch, error))
    )
    handler = Gated(is_open=False)
    with (
        caplog.at_level(logging.ERROR, "batchqueue_async"),
        LoopThread(shutdown_timeout=0.1) as loop_thread,
    ):
        queue: Bridge = loop_thread.open("lost", config, {int: handler})
        assert queue.produce(0)
        assert handler.entered.wait(10)
        assert queue.produce_many([1, 2, 3]) == 3
    assert [batch for batch, _ in told] == [[0, 1, 2, 3]]
    assert type(told[0][1]) is BatchQueueError
    assert any("4 items" in each.getMessage() for each in caplog.records)
    assert check_settled(queue).returned == 4


def test_one_deadline_holds_for_all_queues(loop_kind: str) -> None:
    assert loop_kind
    config = BatchQueueConfig[Any](on_error=lambda _batch, _error: None)
    with Stopwatch() as watch, LoopThread(shutdown_timeout=0.2) as loop_thread:
        for number in range(4):
            handler = Gated(is_open=False)
            queue: Bridge = loop_thread.open(f"q{number}", config, {int: handler})
            assert queue.produce(1)
            assert handler.entered.wait(10)
    assert watch.seconds >= 0.15


def test_leaving_it_ends_the_waits_of_other_threads(loop_kind: str) -> None:
    """None of them hangs, and none of them gets anything but its contract."""
    assert loop_kind

    def until_refused(call: Callable[[], object]) -> BaseException | None:
        try:
            while not is_over.is_set():
                call()
        except BaseException as error:  # noqa: BLE001 - judged below
            return error
        return None

    is_over = threading.Event()
    config = BatchQueueConfig[Any](buffer_size=2)
    with LoopThread() as loop_thread:
        queue: Bridge = loop_thread.open("q", config, {int: Gated()})
        calls = [
            in_background(until_refused, call)
            for call in (
                lambda: queue.produce(1),
                lambda: queue.produce_many([1, 2, 3]),
                queue.flush,
                queue.stats,
                lambda: queue.add_handler(str, print),
                lambda: queue.remove_handler(str),
            )
        ]
        time.sleep(0.1)
    time.sleep(0.05)
    is_over.set()
    for error in answers(calls):
        assert error is None or type(error) is BatchQueueError


def test_a_handler_that_blocks_in_a_thread_is_waited_for_at_its_deadline_only(
    loop_kind: str,
) -> None:
    """It cannot be stopped, but the queue's accounts don't wait for it."""
    assert loop_kind
    held, entered = threading.Event(), threading.Event()

    def block(_: list[int]) -> None:
        entered.set()
        held.wait(10)

    def tell(batch: list[Any], _: BaseException) -> None:
        told.extend(batch)
        held.set()

    told: list[Any] = []
    config = BatchQueueConfig[Any](on_error=tell)
    with LoopThread(shutdown_timeout=0.1) as loop_thread:
        queue: Bridge = loop_thread.open("q", config, {int: in_thread(block)})
        assert queue.produce(1)
        assert entered.wait(10)
    assert told == [1]
    assert check_settled(queue).returned == 1


def test_what_cuts_off_the_portals_tasks_does_not_come_when_they_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a loop that is being closed it would never run, with a line of asyncio's."""
    stops: list[bool] = []
    stop = BlockingPortal.stop

    async def noted(self: BlockingPortal, **options: bool) -> None:
        stops.append(options.get("cancel_remaining", False))
        await stop(self, **options)

    monkeypatch.setattr(BlockingPortal, "stop", noted)
    is_past = threading.Event()
    with LoopThread(shutdown_timeout=0.1) as loop_thread:

        async def hold_the_end_up() -> None:
            loop = asyncio.get_running_loop()
            _ = loop.run_in_executor(None, is_past.wait, 30)

        loop_thread.portal.call(hold_the_end_up)
        threading.Timer(0.3, is_past.set).start()
    assert not any(stops)
