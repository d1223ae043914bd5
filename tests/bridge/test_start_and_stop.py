"""`LoopThread.start` and `stop`, its settings, and what they refuse."""

import asyncio
import math
import sys
import threading
import time
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async import in_thread as run_in_thread
from batchqueue_async._bridge.loop_thread import run_of
from batchqueue_async._threads.dead_loop_watchdog import LoopWatchdog
from tests.bridge.background import answers, in_background, wait_until
from tests.bridge.dead import error_of
from tests.bridge.gated import Gated

Bridge = SyncBatchQueue[Any]


def test_start_is_idempotent_and_stop_returns_what_is_left_by_queue(
    loop_kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert loop_kind
    loop_thread = LoopThread("mine", shutdown_timeout=5.0)
    assert loop_thread.start() is loop_thread
    assert loop_thread.start() is loop_thread
    assert [each.name for each in threading.enumerate()].count("mine") == 1
    done: Bridge = loop_thread.open("done", None, {int: Gated()})
    stuck: Bridge = loop_thread.open("stuck", None, {int: Gated(is_open=False)})
    assert done.produce_many(range(3)) == 3
    assert stuck.produce_many(range(3)) == 3
    assert loop_thread.stop(timeout=0.1) == {"done": [], "stuck": [0, 1, 2]}
    assert loop_thread.stop() == {}
    assert "3 items of 'stuck'" in caplog.text
    assert "done" not in caplog.text
    assert not any(each.name == "mine" for each in threading.enumerate())
    for call in (loop_thread.start, loop_thread.__enter__, lambda: loop_thread.portal):
        assert type(error_of(call)) is BatchQueueError
    assert type(error_of(lambda: loop_thread.open("late"))) is BatchQueueError


def test_what_is_hurried_by_a_ctrl_c_tells_what_is_left(loop_kind: str) -> None:
    """Whoever stops it is interrupted, and gets no list."""
    assert loop_kind
    told: list[list[int]] = []
    config = BatchQueueConfig[int](on_error=lambda batch, _: told.append(batch))
    loop_thread = LoopThread().start()
    queue: Bridge = loop_thread.open("q", config, {int: Gated(is_open=False)})
    assert queue.produce(1)
    run = run_of(loop_thread)
    assert run is not None
    run.draining.begin(None, tells=False)
    wait_until(lambda: not queue.is_running)
    run.draining.begin(0.0, tells=True)
    assert run.wait()
    assert (told, run.draining.take_left()) == ([[1]], {"q": []})


def test_after_stop_each_verb_says_that_it_was_stopped() -> None:
    loop_thread = LoopThread().start()
    loop_thread.stop()
    for verb in (loop_thread.start, loop_thread.flush, partial(loop_thread.open, "q")):
        with pytest.raises(BatchQueueError, match="was stopped: make another one"):
            verb()


def test_of_concurrent_stops_one_gets_the_lists(loop_kind: str) -> None:
    assert loop_kind
    loop_thread = LoopThread().start()
    queue: Bridge = loop_thread.open("q", None, {int: Gated(is_open=False)})
    assert queue.produce(1)
    results = answers([in_background(loop_thread.stop, 0.2) for _ in range(4)])
    assert sorted(map(str, results)) == ["{'q': [1]}", "{}", "{}", "{}"]


def test_several_threads_may_start_it(loop_kind: str) -> None:
    assert loop_kind
    loop_thread = LoopThread("one")
    answers([in_background(loop_thread.start) for _ in range(8)])
    assert [each.name for each in threading.enumerate()].count("one") == 1
    assert loop_thread.stop() == {}


def test_a_handler_may_stop_it_and_does_not_wait_for_itself(loop_kind: str) -> None:
    assert loop_kind
    told: list[Any] = []

    def consume(_: list[int]) -> None:
        told.append(loop_thread.stop())

    def on_loop(_: list[str]) -> None:
        told.append(error_of(loop_thread.stop))

    loop_thread = LoopThread().start()
    handlers: dict[type, Any] = {int: run_in_thread(consume), str: on_loop}
    queue: Bridge = loop_thread.open("q", None, handlers)
    assert queue.produce("a")
    queue.flush(10)
    assert type(told[0]) is BatchQueueError
    assert queue.produce(1)
    wait_until(lambda: not queue.is_running)
    loop_thread.stop()
    assert told[1:] == [{}]


def test_queues_that_were_made_on_its_loop_are_drained_too(loop_kind: str) -> None:
    """The last started first, whoever made them."""
    assert loop_kind
    closed: list[str] = []

    class Closing:
        def __init__(self, name: str) -> None:
            self.name = name

        async def consume(self, batch: list[int]) -> None: ...

        async def on_close(self) -> None:
            closed.append(self.name)

    async def make(name: str) -> None:
        queue = BatchQueue(name, BatchQueueConfig[int](consumer=Closing(name)))
        await queue.start()
        assert await queue.produce(1)

    loop_thread = LoopThread().start()
    loop_thread.open("first", BatchQueueConfig(consumer=Closing("first")))
    loop_thread.portal.call(make, "second")
    loop_thread.open("third", BatchQueueConfig(consumer=Closing("third")))
    assert loop_thread.stop() == {"first": [], "second": [], "third": []}
    assert closed == ["third", "second", "first"]


@pytest.mark.parametrize("value", ["30", math.nan, math.inf, -1.0, True])
def test_no_number_of_seconds_is_refused_when_it_is_given(value: Any) -> None:  # noqa: ANN401
    for field in ("shutdown_timeout", "patience"):
        with pytest.raises((TypeError, ValueError), match=f"^{field} must be .* got "):
            LoopThread(**{field: value})


@pytest.mark.parametrize("value", ["30", math.nan, math.inf, -1.0])
def test_a_call_with_a_wrong_timeout_does_nothing(
    loop_thread: LoopThread,
    value: Any,  # noqa: ANN401
) -> None:
    queue: Bridge = loop_thread.open("q", None, {int: Gated()})
    assert queue.produce(1)
    for call in (
        lambda: queue.produce(2, timeout=value),
        lambda: queue.produce_many([2], timeout=value),
        lambda: queue.flush(value),
        lambda: queue.shutdown(value),
        lambda: loop_thread.stop(value),
    ):
        with pytest.raises((TypeError, ValueError), match=r"^timeout must be .* got "):
            call()
    assert queue.is_running
    assert queue.stats().accepted == 1


def test_none_is_no_patience(loop_thread: LoopThread) -> None:
    queue: Bridge = loop_thread.open("q", None, {int: Gated()})
    with pytest.raises(ValueError, match=r"^patience must be > 0"):
        SyncBatchQueue(queue._queue, patience=0)


def test_where_no_daemons_are_allowed_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a subinterpreter of its own."""

    def refuse(_: threading.Thread, value: bool) -> None:  # noqa: FBT001
        message = "daemon threads are disabled in this interpreter"
        raise RuntimeError(message)

    with monkeypatch.context() as patched:
        daemon = property(lambda _: False, refuse)
        patched.setattr(threading.Thread, "daemon", daemon)
        with pytest.raises(BatchQueueError, match=r"cannot start: daemon threads are"):
            LoopThread().start()


def test_a_handler_alone_has_no_type(loop_thread: LoopThread) -> None:
    rule = r"^handlers must be a mapping of types to handlers, or None, got \["
    with pytest.raises(TypeError, match=rule):
        loop_thread.open("q", None, [print])  # type: ignore[arg-type]
    assert loop_thread.open("q", None, {int: print}).produce(1)


def test_a_timeout_is_no_name() -> None:
    with pytest.raises(TypeError, match=r"^name must be a str, as in .*, got 30$"):
        LoopThread(30)  # type: ignore[arg-type]


def test_in_thread_has_a_thread_while_a_queue_has_it(loop_thread: LoopThread) -> None:
    """From the registration on: at the interpreter's exit there is none to be had."""

    def names() -> list[str]:
        return [each.name for each in threading.enumerate() if "consume" in each.name]

    def consume(_: list[int]) -> None: ...

    handler = run_in_thread(consume)
    assert names() == []
    first: Bridge = loop_thread.open("first", None, {int: handler})
    second: Bridge = loop_thread.open("second", BatchQueueConfig(consumer=handler))
    assert len(names()) == 1
    assert first.produce(1)
    first.shutdown(5)
    assert second.produce(1)
    second.flush(5)
    assert len(names()) == 1
    second.shutdown(5)
    wait_until(lambda: names() == [])


def test_a_repr_says_what_it_is_on_any_thread() -> None:
    loop_thread = LoopThread("rows")
    assert repr(loop_thread) == "<LoopThread 'rows' new>"
    with loop_thread:
        queue: Bridge = loop_thread.open("q", BatchQueueConfig(consumer=print))
        assert repr(loop_thread) == "<LoopThread 'rows' running>"
        assert repr(queue) == "<SyncBatchQueue 'q' running>"
    assert repr(loop_thread) == "<LoopThread 'rows' left>"
    assert repr(queue) == "<SyncBatchQueue 'q' closed>"


def test_the_patience_is_a_setting(loop_kind: str) -> None:
    """A handler that blocks the loop for longer is noticed, by who has less."""
    assert loop_kind
    held, entered = threading.Event(), threading.Event()

    def block(_: list[int]) -> None:
        entered.set()
        held.wait(10)

    with LoopThread(patience=0.1) as hasty, LoopThread(patience=60) as patient:
        queues: list[Bridge] = [
            each.open("q", BatchQueueConfig(buffer_size=1), {int: block})
            for each in (hasty, patient)
        ]
        for queue in queues:
            assert queue.produce(0)
            assert entered.wait(10)
            entered.clear()
            assert queue.produce(1)
        calls = [in_background(error_of, partial(each.produce, 2)) for each in queues]
        assert type(calls[0].result(10)) is BatchQueueError
        assert "0.1 s" in str(calls[0].result())
        time.sleep(0.3)
        assert not calls[1].done()
        held.set()
        assert calls[1].result(10) is None


@pytest.mark.real_time
async def test_of_all_who_wait_for_a_loop_one_looks_often() -> None:
    """Each looking ten times a second took a quarter of a processor for 500 threads."""
    loop = asyncio.get_running_loop()
    naps: list[float] = []
    for _ in range(50):
        LoopWatchdog(loop, "it", BatchQueueError, 0.5).wait(naps.append, None)
    assert sorted(naps) == [0.1, *[1.0] * 49]


def test_half_a_uvloop_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child has that which is forked while another thread imports it first."""
    half = ModuleType("uvloop")
    half.__spec__ = ModuleSpec("uvloop", None)
    monkeypatch.setitem(sys.modules, "uvloop", half)
    with pytest.raises(BatchQueueError, match="import uvloop before you fork"):
        LoopThread("mine").start()
