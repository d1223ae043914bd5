"""A process queue is shut down: who asks for it waits for its end, its handlers not."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    SyncBatchQueue,
    close_process_queues,
    in_thread,
    process_queue,
)
from batchqueue_async._bridge import process_queue as module
from tests.bridge.background import PATIENCE, answers, in_background, wait_until


class Ending:
    """Its queue is being shut down while the first batch is in its handler."""

    def __init__(self, call: Callable[["Ending"], Any]) -> None:
        self.handled: list[int] = []
        self._call = call
        self._entered, self._gate = threading.Event(), threading.Event()
        self._consumer = in_thread(self._handle)

    def open(self, loop_thread: LoopThread) -> SyncBatchQueue[int]:
        return loop_thread.open("q", BatchQueueConfig(consumer=self._consumer))

    def ask(self) -> SyncBatchQueue[int]:
        # Without a deadline: what waits for itself never ends.
        make = LoopThread("ending", shutdown_timeout=None)
        return process_queue(self.open, make_loop_thread=lambda: make)

    def _handle(self, batch: list[int]) -> None:
        self.handled += batch
        if batch == [1]:
            self._entered.set()
            self._gate.wait(PATIENCE)
            self._call(self)

    def run(self) -> list[Any]:
        """Have another thread ask for the queue; returns what came of it all."""
        first = self.ask()
        assert first.produce(1)
        assert self._entered.wait(PATIENCE)
        shutting = in_background(first.shutdown, None)
        wait_until(lambda: not first.is_running)
        asking = in_background(self._produce_anew)
        wait_until(lambda: self.open not in module._current().opened)
        with pytest.raises(TimeoutError):
            asking.result(0.05)
        self._gate.set()
        return answers([shutting, asking], PATIENCE / 3)

    def _produce_anew(self) -> bool:
        return self.ask().produce(2)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    # In the background: a test that failed has one that never ends.
    answers([in_background(close_process_queues)])


def test_a_handler_produces_into_its_own() -> None:
    ending = Ending(lambda ending: ending.ask().produce(3))
    assert ending.run() == [[], True]
    close_process_queues()
    assert sorted(ending.handled) == [1, 2, 3]


@pytest.mark.parametrize("own", [False, True])
def test_a_handler_closes_all_or_its_own(*, own: bool) -> None:
    ending = Ending(lambda ending: close_process_queues([ending.open] if own else None))
    assert ending.run() == [[], True]
    close_process_queues()
    assert ending.handled == [1, 2]


def test_who_closes_waits_for_what_is_opened_anew() -> None:
    closing = []

    def close(_: Ending) -> None:
        closing.append(in_background(close_process_queues))

    ending = Ending(close)
    left, is_accepted = ending.run()
    answers(closing)
    assert left == []
    assert ending.handled == ([1, 2] if is_accepted else [1])
    assert not module._current().opened


def test_one_that_is_shut_down_again_before_it_was_looked_at_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its `LoopThread` ran on, unknown to `close_process_queues`."""
    handled: list[int] = []
    names = iter(["first", "second", "third"])

    def open_queue(loop_thread: LoopThread) -> SyncBatchQueue[int]:
        return loop_thread.open("q", BatchQueueConfig(consumer=handled.extend))

    def ask() -> SyncBatchQueue[int]:
        return process_queue(
            open_queue, make_loop_thread=lambda: LoopThread(next(names))
        )

    def anew_first(registry: Any, key: Any) -> Any:  # noqa: ANN401
        monkeypatch.undo()
        assert ask().produce(2)
        assert ask().shutdown() == []
        return registry.own_lock(key)

    first = ask()
    assert first.produce(1)
    assert first.shutdown() == []
    monkeypatch.setattr(module._Registry, "own_lock", anew_first)
    assert ask().produce(3)
    close_process_queues()
    assert handled == [1, 2, 3]
    left = {thread.name for thread in threading.enumerate()}
    assert not left & {"first", "second", "third"}
