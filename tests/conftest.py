"""Loops, leak checks and strict logging for the whole suite.

Async tests run in virtual time. `@pytest.mark.real_time` runs one on asyncio's loop
and on uvloop instead; `@pytest.mark.asyncio(loop_factories=["virtual", "uvloop"])`
picks by name.
"""

import gc
import logging
import signal
import threading
from collections.abc import AsyncIterator, Generator, Iterator

import hypothesis
import pytest
import pytest_asyncio

from tests.support.leaks import surviving_tasks, surviving_threads
from tests.support.real_clocks import leave_failures, note_failure, note_loop
from tests.support.real_loops import LoopFactory, is_second_loop, real_loops
from tests.support.thorough import examples, is_in_sample, is_left_to_ci
from tests.support.virtual_loop import VirtualTimeLoop

pytest.register_assert_rewrite("tests.support.oracle")
pytest_plugins = [
    "tests.support.postgres",
    "tests.support.redis",
    "tests.support.spark",
    "tests.support.striking",
]

# What one example takes depends on the machine; `timeout` bounds the whole test.
hypothesis.settings.register_profile(
    "tests", hypothesis.settings(deadline=None, max_examples=examples(100))
)
hypothesis.settings.load_profile("tests")

test_failed = pytest.StashKey[bool]()


def pytest_configure() -> None:
    """Take SIGINT as a terminal's programs do, where a shell runs us in background.

    What tests start inherits that it is ignored, but not our handler.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, LoopFactory]:
    """Virtual time unless the test asks for something else."""
    asked = item.get_closest_marker("asyncio")
    if asked is not None and "loop_factories" in asked.kwargs:
        return {"virtual": VirtualTimeLoop, **real_loops()}
    if item.get_closest_marker("real_time") is not None:
        return real_loops()
    return {"virtual": VirtualTimeLoop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each async test the leak check that runs inside its loop."""
    for item in items:
        if pytest_asyncio.is_async_test(item):
            item.fixturenames.insert(0, "_no_task_survives")
        if item.get_closest_marker("spark") is not None:
            _be_patient(item)
        is_variant = "[" in item.name
        if (is_second_loop(item) and not is_in_sample(item.nodeid)) or (
            is_variant and is_left_to_ci(item.path.name, item.nodeid)
        ):
            item.add_marker(pytest.mark.slow)


def _be_patient(item: pytest.Item) -> None:
    # A timeout that strikes between a question to the JVM and its answer makes every
    # later test take that answer for its own.
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(200))


@pytest.fixture(autouse=True, scope="module")
def _cheap_collections() -> None:
    """Spare those of `asyncio_errors` what was there before the module's tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember failures: what a failed test leaves behind is no second finding."""
    if call.excinfo is not None:
        item.stash[test_failed] = True
    report = yield
    if report.failed:
        note_failure(item)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave word of which tests have failed, for `tests.support.parts`."""
    leave_failures(session.config)


class _Recorder(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.ERROR)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@pytest.fixture(autouse=True)
def asyncio_errors(request: pytest.FixtureRequest) -> Iterator[list[logging.LogRecord]]:
    """Fail the test if asyncio logs an error: lost exceptions, destroyed tasks.

    A test that provokes one requests this fixture, looks at the list and clears it.
    """
    records: list[logging.LogRecord] = []
    handler = _Recorder(records)
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    yield records
    gc.collect()  # most of these errors are logged by finalizers
    logger.removeHandler(handler)
    if not request.node.stash.get(test_failed, False):
        assert not records, [record.getMessage() for record in records]


@pytest.fixture(autouse=True)
def _no_thread_survives(
    request: pytest.FixtureRequest, asyncio_errors: list[logging.LogRecord]
) -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    if not request.node.stash.get(test_failed, False):
        alive = surviving_threads(before)
        assert not alive, f"threads survive the test: {alive}"


@pytest.fixture
async def _no_task_survives(
    request: pytest.FixtureRequest, _no_thread_survives: None
) -> AsyncIterator[None]:
    note_loop(request.node)
    yield
    if not request.node.stash.get(test_failed, False):
        alive = surviving_tasks()
        assert not alive, f"tasks survive the test: {alive}"
