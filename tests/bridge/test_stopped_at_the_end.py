"""A process is stopped, as by SIGSTOP or a frozen machine, while its queues end."""

import logging
import threading
import time

import pytest

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async._bridge import loop_run, loop_shutdown
from tests.bridge.background import wait_until
from tests.bridge.gated import Gated


def test_a_stop_beyond_the_deadline_leaves_the_loop_its_time(
    loop_kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits was the first to run again, and gave up: what was left was lost."""
    assert loop_kind
    caplog.set_level(logging.ERROR, "batchqueue_async")
    stopped_for = 0.0
    monkeypatch.setattr(
        loop_shutdown, "monotonic", lambda: time.monotonic() + stopped_for
    )
    told: list[int] = []

    def be_stopped() -> None:
        nonlocal stopped_for
        stopped_for = 3600.0

    handler = Gated(is_open=False)
    config = BatchQueueConfig[int](
        max_batch=10, on_error=lambda batch, _: told.extend(batch)
    )
    with LoopThread("mine", shutdown_timeout=2.5) as loop_thread:
        queue = loop_thread.open("q", config, {int: handler})
        queue.produce_many(range(40))
        wait_until(lambda: queue.stats().in_flight > 0)
        stopping = threading.Timer(0.3, be_stopped)
        stopping.start()
    stopping.join()
    assert sorted(told) == list(range(40))
    assert "mine" not in [each.name for each in threading.enumerate()]
    lines = [each.getMessage() for each in caplog.records]
    assert not [each for each in lines if "nobody waits" in each], lines


def test_a_stop_past_the_deadline_counts_as_one_nap(
    loop_kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While `on_error` is told what is left."""
    assert loop_kind
    caplog.set_level(logging.ERROR, "batchqueue_async")
    stopped_for = 0.0
    for each in (loop_run, loop_shutdown):
        monkeypatch.setattr(each, "monotonic", lambda: time.monotonic() + stopped_for)
    told: list[int] = []

    def on_error(batch: list[int], _: BaseException) -> None:
        nonlocal stopped_for
        if not stopped_for:
            time.sleep(0.2)  # By now it is waited for, nap after nap.
            stopped_for = 3600.0
            time.sleep(0.2)
        told.extend(batch)

    config = BatchQueueConfig[int](max_batch=10, on_error=on_error)
    with LoopThread("mine", shutdown_timeout=0.3) as loop_thread:
        queue = loop_thread.open("q", config, {int: Gated(is_open=False)})
        queue.produce_many(range(40))
        wait_until(lambda: queue.stats().in_flight > 0)
    assert sorted(told) == list(range(40))
    assert "nobody waits" not in caplog.text
