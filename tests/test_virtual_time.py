"""The tests' own clock: it jumps, and it doesn't hang."""

import asyncio
import threading
import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.recording_handler import RecordingHandler
from tests.support.settle import settle
from tests.support.virtual_loop import Deadlock, VirtualTimeLoop, run_virtual


async def test_an_hour_passes_at_once() -> None:
    loop = asyncio.get_running_loop()
    virtual, real = loop.time(), time.monotonic()

    await asyncio.sleep(3600)

    assert loop.time() - virtual == pytest.approx(3600)
    assert time.monotonic() - real < 1800


async def test_the_clock_stands_while_a_task_is_ready() -> None:
    loop = asyncio.get_running_loop()
    timer = loop.call_later(0.001, lambda: None)
    start = loop.time()

    for _ in range(10_000):
        await asyncio.sleep(0)

    assert loop.time() == start
    timer.cancel()


def test_a_lost_wakeup_is_a_deadlock() -> None:
    with pytest.raises(Deadlock, match=r"waiting: \['Task-\d+ at test_virtual_time"):
        run_virtual(_wait_for_ever())


async def test_threads_are_waited_for_while_no_timer_is_set() -> None:
    await anyio.to_thread.run_sync(time.sleep, 0.05)


def test_a_thread_that_ends_between_two_looks_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        loop, called = asyncio.get_running_loop(), asyncio.Event()

        def call_and_end() -> int:
            monkeypatch.undo()
            thread = threading.Thread(
                target=loop.call_soon_threadsafe, args=(called.set,)
            )
            thread.start()
            thread.join()
            return 1

        monkeypatch.setattr(threading, "active_count", call_and_end)
        await called.wait()

    run_virtual(main())


@given(st.floats(0, 1e6))
async def test_each_example_runs_in_virtual_time(seconds: float) -> None:
    await asyncio.sleep(seconds)


@pytest.mark.real_time
async def test_real_time_is_real() -> None:
    start = time.monotonic()

    await asyncio.sleep(0.02)

    assert time.monotonic() - start > 0.01
    assert not isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


async def test_settle_runs_everything_but_the_clock() -> None:
    steps = []

    async def work() -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        steps.append("ready")
        await asyncio.sleep(1)
        steps.append("later")

    task = asyncio.create_task(work())
    await settle()

    assert steps == ["ready"]
    await task


async def test_a_gate_holds_a_recording_handler() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    task = asyncio.create_task(handler.consume([1, 2]))

    await handler.entered()

    assert (handler.running, handler.items, handler.handled) == (1, [1, 2], [])
    gate.set()
    await task
    assert (handler.running, handler.handled) == (0, [1, 2])


async def test_errors_that_asyncio_logs_are_seen(
    asyncio_errors: list[object],
) -> None:
    async def fail() -> None:
        raise ValueError

    task = asyncio.create_task(fail())
    await settle()
    del task

    assert len(asyncio_errors) == 1
    asyncio_errors.clear()


async def _wait_for_ever() -> None:
    await asyncio.Event().wait()
