"""Threads that run calls, for a handler that blocks: each one after the other.

The first is kept ready from the start: at the interpreter's exit, where a `LoopThread`
still drains, Python 3.12 and later start no thread any more. The others, if several
calls may run at once, are started when no thread is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

# Private, but it is all that makes `anyio.from_thread` work in a thread that anyio has
# not started.
from anyio._core._eventloop import claim_worker_thread, get_async_backend

from batchqueue_async._bridge import fork_rest
from batchqueue_async._bridge.fork_rest import Rest
from batchqueue_async._threads.wake_up_file import WakeUpFile

R = TypeVar("R")

_CallBack: TypeAlias = Callable[[Callable[[], None]], None]

# Seconds that a fork waits for a call to end. Most calls take longer, since they wait
# for a server; while they do they hold no lock.
_REST_WITHIN = 0.2


_Calls: TypeAlias = "SimpleQueue[Callable[[], object] | None]"


class Workers:
    """The threads, `most` at most. Daemons: a call that never returns holds up no exit.

    Raises:
        RuntimeError: No thread can be started.
    """

    def __init__(self, name: str, most: int = 1) -> None:
        self._name = name
        self._most = most
        self._calls: _Calls = SimpleQueue()
        # As many as there are idle threads for which no call is on its way.
        self._idle = threading.Semaphore(0)
        self._started = 0
        # Not by the first call: a daemon that the interpreter's exit ends in the middle
        # of an import takes the import lock along, for which the exit then waits for
        # ever. Where no file can be opened now each call tries again.
        with contextlib.suppress(Exception):
            get_async_backend("asyncio")
        self._start()

    async def run(self, function: Callable[[], R]) -> R:
        """Run a function, which must not raise, on a thread, in this context."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        call = partial(_answer, copy_context(), function, answer, _caller_of(loop))
        # Before a thread is started: one that found no call would count as idle.
        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            # If none can be started, the call waits for one of the threads there are.
            with contextlib.suppress(RuntimeError):
                self._start()
        return await answer

    def do(self, function: Callable[[], object]) -> None:
        """Run a function, which must not raise, on a thread; nobody waits for it."""
        _put_aside(self._calls, self._idle, function)

    def end(self) -> None:
        """Let the threads end after the calls that they have got."""
        for _ in range(self._started):
            self._calls.put(None)

    def _start(self) -> None:
        number = f" {self._started}" if self._most > 1 else ""
        thread = WorkerThread(self._calls, self._idle)
        threading.Thread(
            target=thread.serve, name=f"{self._name}{number}", daemon=True
        ).start()
        self._started += 1


class WorkerThread:
    """What runs on one. It knows only its calls, so that it keeps no handler alive."""

    def __init__(self, calls: _Calls, idle: threading.Semaphore) -> None:
        self.ident: int | None = None
        self._calls = calls
        self._idle = idle

    def serve(self) -> None:
        self.ident = threading.get_ident()
        process = os.getpid()
        fork_rest.remember(self)
        try:
            # A call that has forked returns in the child, too: nobody calls there.
            while os.getpid() == process and (call := self._next()) is not None:
                call()
                del call
        finally:
            fork_rest.forget(self)

    def rest(self, rest: Rest) -> Callable[[], None]:
        _put_aside(self._calls, self._idle, rest.run)
        return partial(rest.reached.wait, _REST_WITHIN)

    def _next(self) -> Callable[[], object] | None:
        try:
            return self._calls.get_nowait()
        except Empty:
            self._idle.release()
            return self._calls.get()


def _put_aside(
    calls: _Calls, idle: threading.Semaphore, errand: Callable[[], object]
) -> None:
    # An idle thread that takes it is no longer counted; afterwards it counts itself.
    idle.acquire(blocking=False)
    calls.put(errand)


def _caller_of(loop: asyncio.AbstractEventLoop) -> _CallBack:
    """Return what has the loop call back, though a signal handler raises as it does."""
    file = WakeUpFile.of(loop)
    return partial(_call_back, loop) if file is None else file.call


def _call_back(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # Raised if the loop is closed, where nobody waits for the answer any more.
    with contextlib.suppress(RuntimeError):
        # Twice: a signal handler may raise just as the loop begins the first one.
        loop.call_soon_threadsafe(call)
        loop.call_soon_threadsafe(call)


def _answer(
    context: Context,
    function: Callable[[], Any],
    answer: asyncio.Future[Any],
    call_back: _CallBack,
) -> None:
    """Call, and have the result where it is wanted: on the future's loop."""
    loop = answer.get_loop()
    tell = answer.set_result
    try:
        # Imports it where that has failed so far.
        with claim_worker_thread(get_async_backend("asyncio"), loop):
            result = context.run(function)
    except Exception as error:  # noqa: BLE001 - raised on the loop, where it is waited for
        tell, result = answer.set_exception, error
    call_back(partial(_tell, answer, tell, result))


def _tell(
    answer: asyncio.Future[Any], tell: Callable[[Any], object], result: object
) -> None:
    if not answer.done():
        tell(result)
