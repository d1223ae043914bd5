"""Loop threads on each kind of loop, and eager switches between threads."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from batchqueue_async import LoopThread
from batchqueue_async._threads import dead_loop_watchdog
from tests.support.real_loops import real_loops


@pytest.fixture(params=sorted(real_loops()))
def loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which loop a `LoopThread` of the test gets."""
    kind = str(request.param)
    if kind != "uvloop":
        # Both `find_spec` and `import` take this for a module that is not there.
        monkeypatch.setitem(sys.modules, "uvloop", None)
    return kind


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No alarm where a crowded machine lets a loop wait for half a second.

    The alarm has tests of its own, which go without this.
    """
    begin = dead_loop_watchdog.LoopWatchdog.__init__

    def begin_patiently(
        self: dead_loop_watchdog.LoopWatchdog,
        *arguments: Any,  # noqa: ANN401 - whatever it takes
    ) -> None:
        begin(self, *arguments)
        self._patience = max(self._patience, 10.0)

    monkeypatch.setattr(dead_loop_watchdog.LoopWatchdog, "__init__", begin_patiently)


@pytest.fixture
def loop_thread(loop_kind: str, patience: None) -> Iterator[LoopThread]:
    """A running `LoopThread`, on each kind of loop."""
    assert loop_kind
    with LoopThread(shutdown_timeout=5.0) as running:
        yield running


@pytest.fixture
def eager_switches(patience: None) -> Iterator[None]:
    """Let threads take turns all the time, not 200 times a second."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)
