"""What the library has for its users' tests; the loop: tests/test_virtual_time.py."""

import asyncio
import math
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import batchqueue_async.testing
from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async.testing import (
    Deadlock,
    RecordingHandler,
    VirtualTimeLoop,
    run_virtual,
    settle,
)

SUITE = """
import asyncio
import pytest
import unittest
from unittest import mock
from batchqueue_async.testing import VirtualTimeLoop

@pytest.fixture
def hour():
    return 3600

@pytest.mark.virtual_time
async def test_passes(hour):
    await asyncio.sleep(hour)
    assert asyncio.get_running_loop().time() == hour

@pytest.mark.virtual_time
@pytest.mark.parametrize("n", [1, 2])
async def test_each_has_a_loop_of_its_own(n):
    assert asyncio.get_running_loop().time() == 0

@pytest.mark.virtual_time
@mock.patch("os.getlogin")
async def test_gets_what_is_no_fixture_elsewhere(patched, hour, minutes=60):
    patched.assert_not_called()
    await asyncio.sleep(hour / minutes)

@pytest.mark.virtual_time
async def test_hangs():
    await asyncio.Event().wait()

@pytest.mark.virtual_time
def test_sync():
    pass

def test_unmarked():
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()

class TestOfUnittest(unittest.IsolatedAsyncioTestCase):
    @pytest.mark.virtual_time
    async def test_runs_itself(self):
        pass

    async def test_unmarked(self):
        pass
"""

OF_HYPOTHESIS = """
import pytest
from hypothesis import given, strategies

@pytest.mark.virtual_time
@given(strategies.integers())
async def test_of_hypothesis(number):
    pass
"""


def pytest_run(directory: Path, *arguments: str) -> str:
    (directory / "test_it.py").write_text(SUITE, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", *arguments],
        cwd=directory,
        # As in an environment that has pytest and nothing else.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_the_plugin_runs_marked_tests_in_virtual_time(tmp_path: Path) -> None:
    said = pytest_run(tmp_path, "-p", "batchqueue_async.testing.pytest_plugin")

    assert "2 failed, 6 passed, 1 error" in said
    assert "virtual_time is not for unittest's test cases" in said
    assert "Deadlock: nothing is ready, no timer is set; waiting:" in said
    assert "is for `async def` tests" in said


def test_the_plugin_runs_them_beside_pytest_asyncio_in_its_auto_mode(
    tmp_path: Path,
) -> None:
    plugins = [
        "-p",
        "pytest_asyncio.plugin",
        "-p",
        "batchqueue_async.testing.pytest_plugin",
    ]
    said = pytest_run(tmp_path, *plugins, "-o", "asyncio_mode=auto")

    assert "2 failed, 6 passed, 1 error" in said
    assert "Deadlock: nothing is ready" in said


def test_the_plugin_runs_them_beside_a_plugin_that_was_loaded_after_it(
    tmp_path: Path,
) -> None:
    plugins = [
        "-p",
        "batchqueue_async.testing.pytest_plugin",
        "-p",
        "anyio.pytest_plugin",
    ]
    # Each test comes once for each of anyio's backends.
    chosen = ["-o", "anyio_mode=auto", "-k", "not trio"]
    said = pytest_run(tmp_path, *plugins, *chosen)

    assert "2 failed, 6 passed, 5 deselected" in said
    assert "Deadlock: nothing is ready" in said


def test_the_plugin_says_how_a_test_of_hypothesis_is_written(tmp_path: Path) -> None:
    (tmp_path / "test_given.py").write_text(OF_HYPOTHESIS, "utf-8")
    said = pytest_run(
        tmp_path, "-p", "batchqueue_async.testing.pytest_plugin", "test_given.py"
    )

    assert "is a plain `def` that calls run_virtual" in said


def test_the_plugin_is_there_for_who_asks_only(tmp_path: Path) -> None:
    assert "'virtual_time' not found in `markers`" in pytest_run(tmp_path)


def test_it_needs_neither_pytest_nor_looptime() -> None:
    code = (
        "import sys, batchqueue_async.testing; "
        "print(*sorted({'pytest', '_pytest', 'looptime'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", batchqueue_async.testing.__all__)
def test_every_name_has_a_docstring(name: str) -> None:
    assert getattr(batchqueue_async.testing, name).__doc__


def test_fail_when_that_only_says_whether_is_refused() -> None:
    handler = RecordingHandler[int](fail_when=bool)  # type: ignore[arg-type]
    rule = "fail_when must return an exception or None, got True"
    with pytest.raises(TypeError, match=rule):
        run_virtual(handler.consume([1]))


def test_a_queue_s_linger_is_exact() -> None:
    async def main() -> list[float]:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig(consumer=handler, linger=60.0, max_batch=2)
        async with BatchQueue("q", config) as queue:
            for number in range(3):
                await queue.produce(number)
            # Each idle nap of the drain task takes its steps, also in virtual time.
            await asyncio.sleep(120)
        assert handler.batches == [[0, 1], [2]]
        return handler.times

    assert run_virtual(main()) == pytest.approx([0.001, 60.0], abs=0.01)


def test_short_waits_come_out_even() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0.001)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 1.0


def test_waits_below_a_tick_are_over() -> None:
    async def main() -> None:
        for _ in range(10):
            await asyncio.sleep(1e-9)

    run_virtual(main())


def test_an_executor_takes_real_time() -> None:
    async def main() -> bool:
        # If the clock jumped while the thread is at work, this would time out.
        async with asyncio.timeout(30):
            await asyncio.to_thread(time.sleep, 0.05)
        return True

    assert run_virtual(main())


def test_a_deadlock_is_not_for_the_code_under_test() -> None:
    async def swallow() -> None:
        with suppress(BaseException):
            await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="test_testing"):
        run_virtual(swallow())


@pytest.mark.parametrize("seconds", [math.inf, 1e308])
def test_who_sleeps_for_ever_is_a_deadlock(seconds: float) -> None:
    with pytest.raises(Deadlock, match="test_testing"):
        run_virtual(_sleep(seconds))


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_it_is_a_loop_factory() -> None:
    async def main() -> float:
        await asyncio.sleep(5)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(main()) == 5.0


async def test_it_says_that_a_loop_runs_already() -> None:
    async def main() -> None: ...

    with pytest.raises(RuntimeError, match="one runs here already: call it in a plain"):
        run_virtual(main())


def test_it_wants_the_coroutine_not_its_function() -> None:
    async def main() -> None: ...

    with pytest.raises(TypeError, match=r"run_virtual\(main\(\)\), got "):
        run_virtual(main)  # type: ignore[arg-type]


def test_settle_says_which_loop_it_is_for() -> None:
    uvloop = pytest.importorskip("uvloop")
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(RuntimeError, match="settle is for a VirtualTimeLoop"),
    ):
        runner.run(settle())


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"gate": 5}, "gate must be an asyncio.Event or None, got 5"),
        ({"gate": asyncio.Event}, "gate must be an asyncio.Event or None, got <class"),
        ({"delay": "x"}, "delay must be a number, got 'x'"),
        ({"delay": -1}, "delay must be >= 0, got -1"),
        ({"delay": float("nan")}, "delay must be finite, got nan"),
        ({"fail_when": 5}, "fail_when must be callable with one argument, the batch"),
    ],
)
def test_a_handler_that_could_not_record_is_refused(
    settings: dict[str, Any], told: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(told)):
        RecordingHandler[int](**settings)


@pytest.mark.parametrize("wrong", [0, -1, None, 1.5])
async def test_settle_takes_one_turn_or_more(wrong: Any) -> None:  # noqa: ANN401
    """After none it said that the loop was busy."""
    with pytest.raises((TypeError, ValueError), match=r"^max_cycles must be "):
        await settle(wrong)
