"""A handler that hangs, or holds the loop up, is named in the log and in `stats`."""

import asyncio
import logging
import operator
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    _loop_time,
    in_thread,
)
from batchqueue_async._loop_time import ThreadUse, Use
from tests.engine.observing import live_timers
from tests.engine.until import turns, until

SLOW = 5.0
HELD_UP = "held up the event loop"


def slow(**settings: Any) -> BatchQueueConfig[int]:  # noqa: ANN401 - of any kind
    return BatchQueueConfig[int](slow_handler=SLOW, **settings)


def lines(
    caplog: pytest.LogCaptureFixture, words: str = "has been inside"
) -> list[str]:
    return [each.getMessage() for each in caplog.records if words in each.getMessage()]


async def hangs_deep_inside(until_it_is: asyncio.Event) -> None:
    await until_it_is.wait()


class Hanging:
    """Hangs in one of its methods, until it is let go."""

    tick_every = 1.0

    def __init__(self, where: str) -> None:
        self.go = asyncio.Event()
        self.where = where

    async def consume(self, batch: list[int]) -> None:
        await self._maybe("consume")

    async def on_open(self) -> None:
        await self._maybe("on_open")

    async def on_idle(self) -> None:
        await self._maybe("on_idle")

    async def on_tick(self) -> None:
        await self._maybe("on_tick")

    async def on_flush(self) -> None:
        await self._maybe("on_flush")

    async def on_close(self) -> None:
        await self._maybe("on_close")

    async def _maybe(self, where: str) -> None:
        if where == self.where:
            await hangs_deep_inside(self.go)


async def test_it_is_logged_once_with_its_name_and_where_it_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = Hanging("consume")
    async with BatchQueue("q", slow()) as queue:
        queue.add_handler(int, handler)
        await queue.produce(1)
        await asyncio.sleep(SLOW - 0.1)
        assert lines(caplog) == []
        await asyncio.sleep(0.2)
        (line,) = lines(caplog)
        assert line.startswith("q: Hanging of int has been inside for 5.0 s, at:\n")
        assert "in consume" in line
        assert "in hangs_deep_inside" in line
        assert "await until_it_is.wait()" in line
        assert caplog.records[0].levelno == logging.WARNING
        await asyncio.sleep(10 * SLOW)
        assert len(lines(caplog)) == 1
        handler.go.set()
    assert len(lines(caplog)) == 1


@pytest.mark.parametrize("where", ["on_open", "on_idle", "on_tick", "on_flush"])
async def test_a_hook_is_logged_too(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Hanging(where)
    async with BatchQueue("q", slow()) as queue:
        queue.add_handler(int, handler)
        await queue.produce(1)
        flush = asyncio.create_task(queue.flush())
        await asyncio.sleep(3 * SLOW)
        (line,) = lines(caplog)
        # `on_open` stands in the way of `consume`.
        assert where == "on_open" or line.startswith(f"q: {where} of Hanging of int ")
        assert f'self._maybe("{where}")' in line
        handler.go.set()
        await flush


async def test_on_close_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    handler = Hanging("on_close")
    asyncio.get_running_loop().call_later(2 * SLOW, handler.go.set)
    async with BatchQueue("q", slow()) as queue:
        queue.add_handler(int, handler)
        await queue.produce(1)
    (line,) = lines(caplog)
    assert line.startswith("q: on_close of Hanging of int has been inside for 5.0 s")
    assert live_timers() == []


async def test_on_error_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(batch: list[int]) -> None:
        raise ValueError

    async def on_error(batch: list[int], error: BaseException) -> None:
        await asyncio.sleep(2 * SLOW)

    async with BatchQueue("q", slow(consumer=fail, on_error=on_error)) as queue:
        await queue.produce(1)
    (line,) = lines(caplog)
    assert "on_error of test_on_error_is_logged_too" in line


@pytest.mark.parametrize("timeout", [None, 100.0])
async def test_a_late_call_is_told_of_when_it_is_slow(
    timeout: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    """However the timer stood when it began: calls before it were quick."""
    naps = iter([1.0, 1.0, SLOW + 0.5, SLOW - 0.5, SLOW + 0.5])

    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(next(naps))

    config = slow(consumer=consume, max_batch=1, handler_timeout=timeout)
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(5))
    assert len(lines(caplog)) == 2


async def test_each_of_several_calls_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(SLOW - 0.5 + batch[0])

    config = slow(
        consumer=consume,
        drain_tasks=DrainTaskPolicy.fixed(3),
        partitions=PartitionPolicy.fixed(3),
        selector=lambda item, _: item % 3,
    )
    async with BatchQueue("q", config) as queue:
        for number in range(3):
            await queue.produce(number)
            await asyncio.sleep(1.0)
    assert len(lines(caplog)) == 2, "all but the first one"


async def test_none_turns_it_off(caplog: pytest.LogCaptureFixture) -> None:
    handler = Hanging("consume")
    config = BatchQueueConfig[int](consumer=handler, slow_handler=None)
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        await asyncio.sleep(3600.0)
        assert live_timers() == []
        handler.go.set()
    assert lines(caplog) == []


async def test_a_queue_at_rest_has_no_timer() -> None:
    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(0.1)

    async with BatchQueue("q", slow(consumer=consume)) as queue:
        await queue.produce(1)
        await turns()
        assert len(live_timers()) == 2, "that of the handler, and that of the queue"
        await asyncio.sleep(0.5)
        assert live_timers() == []
    assert live_timers() == []


async def test_a_queue_that_gave_up_leaves_no_timer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stubborn(batch: list[int]) -> None:
        end = asyncio.get_running_loop().time() + 2 * SLOW
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    config = slow(consumer=stubborn, handler_timeout=1.0)
    queue = BatchQueue("q", config)
    await queue.start()
    await queue.produce(1)
    await asyncio.sleep(3.0)
    assert "cannot be stopped" in caplog.text
    assert queue.stats().handlers[0].inside_for == pytest.approx(3.0)
    await asyncio.sleep(SLOW)
    assert len(lines(caplog)) == 1, "it is still inside"
    await queue.shutdown(timeout=0.0)
    assert len(live_timers()) == 1, "the handler's own sleep"
    await asyncio.sleep(2 * SLOW)


async def test_stats_say_for_how_long_a_handler_has_been_inside() -> None:
    handler = Hanging("consume")
    async with BatchQueue("q", slow()) as queue:
        queue.add_handler(int, handler)
        queue.add_handler(str, lambda _: None)
        await queue.produce(1)
        await asyncio.sleep(3.0)
        of_int, of_str = queue.stats().handlers
        assert of_int.inside_for == pytest.approx(3.0)
        assert of_str.inside_for == 0.0
        handler.go.set()
        await queue.flush()
        assert queue.stats().handlers[0].inside_for == 0.0


@pytest.mark.real_time
async def test_by_the_machines_clock(caplog: pytest.LogCaptureFixture) -> None:
    handler = Hanging("consume")
    config = BatchQueueConfig[int](consumer=handler, slow_handler=0.05)
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        await until(lambda: lines(caplog))
        assert queue.stats().handlers[0].inside_for >= 0.045
        handler.go.set()
    assert len(lines(caplog)) == 1


@pytest.mark.real_time
async def test_a_handler_on_a_thread_is_told_of_and_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = BatchQueueConfig[int](
        consumer=in_thread(lambda _: time.sleep(0.25)), slow_handler=0.05
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    assert len(lines(caplog)) == 1
    assert lines(caplog, HELD_UP) == []


HOLD = 0.25


def holds(batch: list[int]) -> None:
    time.sleep(HOLD)


async def holds_before_its_first_wait(batch: list[int]) -> None:
    time.sleep(HOLD)  # noqa: ASYNC251 - that is what it is about
    await asyncio.sleep(0.01)


async def holds_after_it(batch: list[int]) -> None:
    await asyncio.sleep(0.01)
    time.sleep(HOLD)  # noqa: ASYNC251


async def holds_without_any(batch: list[int]) -> None:
    time.sleep(HOLD)  # noqa: ASYNC251


async def holds_and_raises(batch: list[int]) -> None:
    await asyncio.sleep(0)
    time.sleep(HOLD)  # noqa: ASYNC251
    raise ValueError


class HoldsInAHook:
    def consume(self, batch: list[int]) -> None: ...

    def on_flush(self) -> None:
        time.sleep(HOLD)


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize(
    "handler, label",
    [
        (holds, "holds"),
        (holds_before_its_first_wait, "holds_before_its_first_wait"),
        (holds_after_it, "holds_after_it"),
        (holds_without_any, "holds_without_any"),
        (holds_and_raises, "holds_and_raises"),
        (HoldsInAHook(), "on_flush of HoldsInAHook"),
    ],
)
@pytest.mark.filterwarnings("ignore:handler_timeout has no effect")
async def test_who_holds_the_loop_up_is_named(
    handler: Any,  # noqa: ANN401 - a handler of any form
    label: str,
    timeout: float | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = BatchQueueConfig[int](
        consumer=handler, handler_timeout=timeout, on_error=lambda *_: None
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        try:
            await queue.flush()
        except Exception:  # noqa: BLE001 - the one that raises
            assert handler is holds_and_raises
    (line,) = lines(caplog, HELD_UP)
    assert line.startswith(f"q: {label} {HELD_UP} for 0.")


async def test_it_is_named_once_and_then_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with BatchQueue("q", BatchQueueConfig(consumer=holds, max_batch=1)) as queue:
        await queue.produce_many(range(3))
        await queue.flush()
        assert len(lines(caplog, HELD_UP)) == 1
    last = lines(caplog, HELD_UP)[-1]
    assert len(lines(caplog, HELD_UP)) == 2
    assert "2 more times" in last
    assert "such as for 0." in last


@pytest.mark.real_time  # A machine that stands still looks like a handler that does.
async def test_who_waits_long_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where another task holds the loop meanwhile: that is not the handler."""
    gate = asyncio.Event()

    async def waits(batch: list[int]) -> None:
        await gate.wait()

    for timeout in (None, 60.0):
        gate.clear()
        config = BatchQueueConfig[int](consumer=waits, handler_timeout=timeout)
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            await turns()
            time.sleep(HOLD)  # noqa: ASYNC251
            gate.set()
            time.sleep(HOLD)  # noqa: ASYNC251
    assert lines(caplog, HELD_UP) == []


async def test_a_cancelled_handler_can_clean_up_and_answer() -> None:
    """What is thrown into a handler comes to it, as without the look at its steps."""
    seen: list[str] = []

    async def consume(batch: list[int]) -> None:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            seen.append("cleaned up")
            raise

    queue = BatchQueue("q", BatchQueueConfig[int](consumer=consume))
    await queue.start()
    await queue.produce(1)
    await turns()
    assert await queue.shutdown(timeout=1.0) == [1]
    assert seen == ["cleaned up"]


def waits_for_the_interpreter(batch: list[int]) -> None:
    for _ in range(6):
        time.sleep(0)


@pytest.mark.real_time
async def test_who_waits_for_other_threads_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The interpreter's lock is theirs; one that blocks meanwhile is still named."""
    took: list[float] = []

    def timed(batch: list[int]) -> None:
        began = time.monotonic()
        waits_for_the_interpreter(batch)
        took.append(time.monotonic() - began)

    with busy_threads(3, interval=0.04):
        async with BatchQueue("q", BatchQueueConfig(consumer=timed)) as queue:
            await queue.produce(1)
        assert max(took) > 0.1
    assert lines(caplog, HELD_UP) == []
    with busy_threads(3, interval=0.005):
        async with BatchQueue("q", BatchQueueConfig(consumer=holds_long)) as queue:
            await queue.produce(1)
    (line,) = lines(caplog, HELD_UP)
    assert line.startswith("q: holds_long held up the event loop for 0.")


def holds_long(batch: list[int]) -> None:
    time.sleep(0.4)


@contextmanager
def busy_threads(count: int, interval: float) -> Iterator[None]:
    """Have others compute, and each keep the interpreter's lock for so long."""
    is_over, known = threading.Event(), sys.getswitchinterval()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(100))

    threads = [threading.Thread(target=compute) for _ in range(count)]
    sys.setswitchinterval(interval)
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(known)


@pytest.mark.parametrize(
    "used, queued, computed, blocked",
    [
        # Alone on an idle machine: it computes, or blocks.
        (Use(own=0.3, process=0.3, waits=0), 0.0, 0.3, 0.0),
        (Use(own=0.0, process=0.0, waits=1), 0.0, 0.0, 0.3),
        # A busy machine.
        (Use(own=0.05, process=0.05, waits=0), 0.25, 0.05, 0.0),
        (Use(own=0.0, process=0.0, waits=1), 0.1, 0.0, 0.2),
        # Other threads: that may have been the interpreter's lock, and this can't.
        (Use(own=0.05, process=0.3, waits=60), 0.0, 0.05, 0.0),
        (Use(own=0.0, process=0.3, waits=2), 0.0, 0.0, 0.29),
        # Many small reads, and nobody else computes.
        (Use(own=0.0, process=0.005, waits=300), 0.0, 0.0, 0.3),
    ],
)
def test_what_a_step_took_is_split(
    used: Use,
    queued: float,
    computed: float,
    blocked: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = ThreadUse()
    samples = iter([Use(1.0, 2.0, 3.0)])
    monkeypatch.setattr(_loop_time, "sample", lambda: next(samples))
    monkeypatch.setattr(_loop_time, "queued", lambda: 4.0)
    thread.look(10.0)
    samples = iter([Use(*map(operator.add, (1.0, 2.0, 3.0), used))])
    monkeypatch.setattr(_loop_time, "queued", lambda: 4.0 + queued)
    split = thread.split(0.3)
    assert split == pytest.approx((computed, blocked), abs=1e-9)
    assert 10.0 < thread.due < 10.1


@pytest.mark.skipif(sys.platform != "linux", reason="nobody counts waits there")
async def test_a_call_is_not_harmed_where_a_threads_use_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sandbox's filter of system calls: no handler was called, each batch failed."""

    def refuse(_: int) -> NoReturn:
        raise PermissionError

    monkeypatch.setattr(_loop_time, "getrusage", refuse)
    handled: list[int] = []
    async with BatchQueue("q", BatchQueueConfig(consumer=handled.extend)) as queue:
        await queue.produce_many([1, 2])
    assert handled == [1, 2]


async def test_a_call_is_not_harmed_by_what_refuses_to_read_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An audit hook, or a test tool that looks for blocking calls on a loop."""

    def refuse(*_: object, **__: object) -> NoReturn:
        msg = "no files on the loop"
        raise RuntimeError(msg)

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("os.open", refuse)
    handled: list[int] = []
    async with BatchQueue("q", BatchQueueConfig(consumer=handled.extend)) as queue:
        await queue.produce_many([1, 2])
    monkeypatch.undo()
    assert handled == [1, 2]


def test_what_is_dear_to_ask_for_is_asked_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each lone item would pay for it, and it was a third of what that costs."""
    asked: list[float] = []
    now = 0.0

    def queued() -> float:
        asked.append(now)
        return 0.0

    monkeypatch.setattr(_loop_time, "queued", queued)
    thread = ThreadUse()
    for step in range(100):
        now = 0.05 * step
        assert now > thread.due
        thread.look(now)
    assert len(asked) <= 6
