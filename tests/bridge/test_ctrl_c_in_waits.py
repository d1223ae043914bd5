"""A Ctrl-C while a thread waits leaves as itself, wherever in the wait it strikes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchqueue_async import LoopThread, SyncBatchQueue
from tests.bridge.background import in_background
from tests.bridge.gated import stall
from tests.support.interrupts import MOST, interrupted

Bridge = SyncBatchQueue[Any]


@pytest.fixture
def loop_thread(patience: None) -> Iterator[LoopThread]:
    """One kind of loop: what is tested here runs on other threads."""
    with LoopThread(shutdown_timeout=5.0) as running:
        yield running


def flush(queue: Bridge) -> None:
    with pytest.raises(TimeoutError):
        queue.flush(0.002)


WAITS: dict[str, Callable[[Bridge], object]] = {
    "produce": lambda queue: queue.produce(9, timeout=0.002),
    "flush": flush,
}


@pytest.mark.parametrize(
    "wait", [pytest.param(wait, id=name) for name, wait in WAITS.items()]
)
def test_a_ctrl_c_in_a_wait_leaves_as_itself(
    loop_thread: LoopThread, wait: Callable[[Bridge], object]
) -> None:
    """`threading.Event` would turn some into RuntimeError: "release unlocked lock"."""
    stalled = stall(loop_thread)

    def sweep() -> None:
        for step in range(1, MOST):
            if not interrupted(step, lambda: wait(stalled.sync_queue)):
                return
        pytest.fail("more points than expected")

    in_background(sweep).result(50)
    assert stalled.line_length == 0
    stalled.release()
    assert stalled.sync_queue.shutdown(10) == []
    assert stalled.handler.handled == stalled.first_items
