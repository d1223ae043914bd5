"""Runs a coroutine on a loop for another thread, and leaves nothing if it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Generic, TypeVar

from batchqueue_async._loop_close import expect_no_end
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._threads.dead_loop_watchdog import LoopWatchdog
from batchqueue_async._threads.event import ThreadEvent

R = TypeVar("R")


def call_on_loop(
    start: Callable[[], Coroutine[Any, Any, R]],
    watchdog: LoopWatchdog,
    give_back: Callable[[R], object] | None = None,
    context: Context | None = None,
) -> R:
    """Run what `start` returns on the watchdog's loop, and wait for it here.

    It runs in this context unless it is given another one. Where the wait ends early,
    and the call returns something all the same, `give_back` gets that, on the loop.

    Raises:
        BatchQueueError: The loop is dead, or ended meanwhile.
    """
    call = _Call(watchdog.loop, start, give_back)
    try:
        call.begin(context)
        while not call.ended.is_set:
            watchdog.wait(call.ended.wait, None)
        assert call.task is not None
        result = call.task.result()
        # No call from here on: what strikes after one would lose the result.
        call.is_taken = True
    except asyncio.CancelledError as error:
        msg = f"{watchdog.name} ended during the call"
        raise BatchQueueError(msg) from error
    else:
        return result
    finally:
        if not call.is_taken:
            call.give_up()


class _Call(Generic[R]):
    """One call; when it has `ended`, its result is there for the thread.

    Unlike with `asyncio.run_coroutine_threadsafe` the coroutine is made on the loop: a
    loop that never runs again leaves none behind that nobody awaits. Nor is there a
    future of `concurrent.futures`: a Ctrl-C in it may leave its lock taken, and the
    loop would wait for that for ever.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        start: Callable[[], Coroutine[Any, Any, R]],
        give_back: Callable[[R], object] | None,
    ) -> None:
        self.ended = ThreadEvent()
        self._loop = loop
        self._start = start
        self._give_back = give_back
        self._is_given_up = False
        # Whether the thread has its result.
        self.is_taken = False
        self.task: asyncio.Task[R] | None = None
        self._body: Coroutine[Any, Any, R] | None = None

    def begin(self, context: Context | None) -> None:
        # On a closed loop nothing comes of it, and the caller's watchdog raises.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._run, context=context)

    def give_up(self) -> None:
        """The thread waits no longer."""
        self._is_given_up = True
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            self._discard()

    def _run(self) -> None:
        if not self._is_given_up:
            self._body = self._start()
            self.task = self._loop.create_task(self._body)
            self.task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self.ended.is_set:
            # It ended while the thread was giving up.
            self._hand_back()
        elif self.task is not None:
            self.task.cancel()

    def _hand_back(self) -> None:
        task, give_back = self.task, self._give_back
        self._give_back = None
        if task and give_back and not (task.cancelled() or task.exception()):
            give_back(task.result())

    def _discard(self) -> None:
        # A loop that is about to be closed still makes the task, but may not get to its
        # end, or to its first step. That is no fault of the program, and its caller is
        # told, so asyncio is not to warn of it.
        task, body = self.task, self._body
        if task is None or body is None:
            return
        if task.done():
            _look_at_error(task)
            return
        expect_no_end(task)
        if inspect.getcoroutinestate(body) == inspect.CORO_CREATED:
            body.close()

    def _end(self, task: asyncio.Task[R]) -> None:
        _look_at_error(task)
        if self._is_given_up:
            self._hand_back()
        self.ended.set()


def _look_at_error(task: asyncio.Task[Any]) -> None:
    # asyncio logs it otherwise, if the thread has given up.
    if not task.cancelled():
        task.exception()
