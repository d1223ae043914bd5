"""Runs a coroutine on a loop for another thread, and leaves nothing if it cannot."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._threads.vigil import Vigil

R = TypeVar("R")


def call_on_loop(
    loop: asyncio.AbstractEventLoop,
    start: Callable[[], Coroutine[Any, Any, R]],
    vigil: Vigil,
    name: str,
) -> R:
    """Run what `start` returns on the loop, and wait for it on this thread.

    Raises:
        BatchQueueError: The loop is dead, or ended meanwhile; `name` says whose it is.
    """
    call = LoopCall(loop, start)
    answered = threading.Event()
    call.answer.add_done_callback(lambda _: answered.set())
    try:
        while not call.answer.done():
            vigil.keep(answered.wait, None)
        return call.answer.result()
    except concurrent.futures.CancelledError as error:
        msg = f"{name} ended during the call"
        raise BatchQueueError(msg) from error
    finally:
        call.abandon()


class LoopCall(Generic[R]):
    """One call; `answer` is for the thread.

    Unlike with `asyncio.run_coroutine_threadsafe` the coroutine is made on the loop: a
    loop that never runs again leaves none behind that nobody awaits.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        start: Callable[[], Coroutine[Any, Any, R]],
    ) -> None:
        self.answer: concurrent.futures.Future[R] = concurrent.futures.Future()
        self._loop = loop
        self._start = start
        self._task: asyncio.Task[R] | None = None
        self._body: Coroutine[Any, Any, R] | None = None
        # On a closed loop there is no answer; the caller's vigil says so.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._run)

    def abandon(self) -> None:
        """The thread waits no longer; after the answer there is nothing to do."""
        if not self.answer.done():
            self.answer.cancel()
            try:
                self._loop.call_soon_threadsafe(self._cancel)
            except RuntimeError:
                self._discard()

    def _run(self) -> None:
        if not self.answer.cancelled():
            self._body = self._start()
            self._task = self._loop.create_task(self._body)
            self._task.add_done_callback(self._tell)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _discard(self) -> None:
        # A loop that ends runs what threads ask for until it is closed, but may not get
        # to the task's first step: no fault of the program, so nobody is to be warned.
        task, body = self._task, self._body
        if task and body and inspect.getcoroutinestate(body) == inspect.CORO_CREATED:
            body.close()
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001

    def _tell(self, task: asyncio.Task[R]) -> None:
        if task.cancelled():
            self.answer.cancel()
        elif (error := task.exception()) is not None:
            if not self.answer.cancelled():
                self.answer.set_exception(error)
        elif not self.answer.cancelled():
            self.answer.set_result(task.result())
