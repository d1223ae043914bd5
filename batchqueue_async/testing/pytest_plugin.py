"""Runs `async def` tests in virtual time, if asked to: a plugin for pytest.

    # In conftest.py of the tests' root:
    pytest_plugins = ["batchqueue_async.testing.pytest_plugin"]

A test with `@pytest.mark.virtual_time` then runs on a `VirtualTimeLoop` of its own; its
fixtures are plain ones. With pytest-asyncio or anyio's plugin, which run async
fixtures, too, use the loop as their loop factory instead.
"""

import inspect
import unittest
from collections.abc import Generator
from typing import Any

import pytest

from .virtual_time import run_virtual

__all__ = ["pytest_configure", "pytest_pyfunc_call", "pytest_runtest_setup"]


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "virtual_time: runs an async test on a loop whose clock jumps"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a marked test of unittest's, which runs itself: in real time."""
    case = getattr(item, "cls", None)
    is_marked = item.get_closest_marker("virtual_time") is not None
    if is_marked and case is not None and issubclass(case, unittest.TestCase):
        msg = (
            "@pytest.mark.virtual_time is not for unittest's test cases: call "
            "run_virtual in a plain one; or, from Python 3.13 on, let the loop_factory "
            "of an IsolatedAsyncioTestCase be VirtualTimeLoop"
        )
        pytest.fail(msg, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Make a marked test a plain one while pytest calls it, which runs it here.

    A wrapper, since among those that try first the last one to be loaded is the first:
    with `-p` in the options that is another plugin, which would run it in real time.
    """
    if pyfuncitem.get_closest_marker("virtual_time") is None:
        return (yield)
    test = _test_of(pyfuncitem)
    if not inspect.iscoroutinefunction(test):
        msg = (
            "@pytest.mark.virtual_time is for `async def` tests that nothing else "
            "runs; one of Hypothesis' @given is a plain `def` that calls run_virtual, "
            "and has no marker"
        )
        pytest.fail(msg, pytrace=False)

    def plain(**funcargs: object) -> None:
        run_virtual(test(**funcargs))

    with pytest.MonkeyPatch.context() as context:
        context.setattr(pyfuncitem, "obj", plain)
        return (yield)


def _test_of(item: pytest.Function) -> Any:  # noqa: ANN401 - whatever is marked
    test = item.obj
    if type(item).__module__.partition(".")[0] == "pytest_asyncio":
        # In auto mode it takes all async tests, and puts a function of its own around.
        test = getattr(test, "__wrapped__", test)
    return test
