"""Which tests run on real clocks, in processes or on Spark, and which of them failed.

Each run leaves the failures in its cache, for `tests.support.parts`.
"""

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.virtual_loop import VirtualTimeLoop

TESTS = Path(__file__).parents[1]
FOLDERS = {
    TESTS / name
    for name in ("benchmarks", "bridge", "examples", "logs", "spark", "telemetry")
}
FAILURES = "tests/failures"
"""The cache's key: maps the ids of tests that failed to whether that was on a real
clock."""

_is_virtual = pytest.StashKey[bool]()
_failures = pytest.StashKey[dict[str, bool]]()


def note_loop(item: pytest.Item) -> None:
    """Note what the test's time is: to be called on its loop."""
    item.stash[_is_virtual] = isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


def note_failure(item: pytest.Item) -> None:
    """Note that this test failed, or what is around it."""
    noted = item.config.stash.setdefault(_failures, {})
    noted[item.nodeid] = is_on_real_clock(item)


def is_on_real_clock(item: pytest.Item) -> bool:
    """Whether a busy machine can make the test fail, once it has run."""
    if pytest_asyncio.is_async_test(item):
        return not item.stash.get(_is_virtual, True)
    if any(map(item.get_closest_marker, ("real_time", "spark"))):
        return True
    return not FOLDERS.isdisjoint(item.path.parents)


def leave_failures(config: pytest.Config) -> None:
    """Leave what was noted in the cache, where there is one."""
    if hasattr(config, "cache"):
        config.cache.set(FAILURES, config.stash.get(_failures, {}))
