"""Runs a blocking handler off the loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._engine.handlers.registry import Attached
from batchqueue_async._policies.handler_checks import HOOKS, consume_of
from batchqueue_async._policies.handlers import BatchHandler, HandlerLike
from batchqueue_async._wording import shown

if TYPE_CHECKING:
    from batchqueue_async._bridge.worker import Worker

T = TypeVar("T")


def in_thread(handler: HandlerLike[T]) -> BatchHandler[T]:
    """Wrap a blocking handler so that it runs on a worker thread.

    It is still never entered twice at once, whatever the number of drain tasks. Its
    hooks run there, too. A thread cannot be stopped: at
    a shutdown deadline the call is left behind and its batch is returned.

    The thread is the handler's own, a daemon: it is there while a running queue has the
    handler, since at the interpreter's exit Python 3.12 and later start none. Called in
    another way, by a handler of yours, it takes one of anyio's.

    Raises:
        TypeError: The handler is async already, or no handler.
    """
    consume = consume_of(handler)
    for each in (consume, *(getattr(handler, name, None) for name in HOOKS)):
        if _is_async(each):
            msg = (
                f"handler must be blocking to run in a thread, got async {shown(each)}"
            )
            raise TypeError(msg)
    return _InThread(handler, consume)


class _InThread(Attached):
    """The handler's methods as coroutines; it has the hooks that the handler has."""

    _lock: threading.Lock
    _limiter: Any
    _worker: Worker | None
    _end: Callable[[], object]

    def __init__(self, handler: object, consume: Callable[[list[Any]], object]) -> None:
        # A fifth of the time that importing the package would take.
        from anyio import CapacityLimiter, to_thread  # noqa: PLC0415

        self._run_sync = to_thread.run_sync
        self._new_limiter = partial(CapacityLimiter, 1)
        self._forget()
        self._consume = consume
        name = getattr(handler, "__qualname__", type(handler).__qualname__)
        self.__qualname__ = f"in_thread({name})"
        if hasattr(handler, "tick_every"):
            self.tick_every = handler.tick_every
        for name in HOOKS:
            hook = getattr(handler, name, None)
            if callable(hook):
                setattr(self, name, partial(self._run, hook))

    async def consume(self, batch: list[Any], /) -> None:
        await self._run(self._consume, batch)

    def attach(self, queue: object) -> None:
        if self._process != os.getpid():
            # After a fork: the thread and who used it are the parent's.
            self._forget()
        from batchqueue_async._bridge.worker import Worker  # noqa: PLC0415 - anyio's

        with self._lock:
            self._queues.add(queue)
            if self._worker is None:
                # Without it each call asks for a thread, and fails if it gets none.
                with contextlib.suppress(RuntimeError):
                    worker = Worker(self.__qualname__)
                    end = weakref.finalize(self, worker.end)
                    end.atexit = False
                    self._worker, self._end = worker, end

    def detach(self, queue: object) -> None:
        with self._lock:
            self._queues.discard(queue)
            if not self._queues and self._worker is not None:
                self._worker = None
                self._end()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._queues: weakref.WeakSet[object] = weakref.WeakSet()
        self._limiter = None
        self._worker = None
        # Set when a call ends whose task was cancelled away from its thread.
        self._left: asyncio.Future[None] | None = None

    async def _run(self, call: Callable[..., object], *arguments: object) -> None:
        while self._left is not None and not self._left.done():
            await asyncio.wait({self._left})
        thread_call = _ThreadCall(partial(call, *arguments))
        job = asyncio.ensure_future(self._call(thread_call.run))
        try:
            result, error = await asyncio.shield(job)
        except asyncio.CancelledError:
            await _outlast(job)
            if job.cancelled():
                self._left = thread_call.end()
            raise
        if error is not None:
            raise error
        if inspect.isawaitable(result) or inspect.isgenerator(result):
            if inspect.iscoroutine(result):
                result.close()
            msg = (
                f"handler must be blocking to run in a thread, got async {shown(call)}"
            )
            raise TypeError(msg)

    async def _call(
        self, function: Callable[[], tuple[object, BaseException | None]]
    ) -> tuple[object, BaseException | None]:
        if self._limiter is None:
            self._limiter = self._new_limiter()
        worker = self._worker
        if worker is None:
            return await self._run_sync(function, limiter=self._limiter)
        # Not with both at once.
        async with self._limiter:
            return await worker.run(function)


class _ThreadCall:
    """One call on a worker thread, which may last longer than the task that made it.

    Whoever cancels all tasks of a loop ends that task, and not the thread.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._is_on = False
        self._ended: asyncio.Future[None] | None = None

    def run(self) -> tuple[object, BaseException | None]:
        """Call, on the thread."""
        self._is_on = True
        # What is to end the program would end the thread, and then the loop, before the
        # drain task gets to know of it; and no future takes a StopIteration.
        try:
            return self._call(), None
        except BaseException as error:  # noqa: BLE001 - raised on the loop
            return None, error
        finally:
            self._is_on = False
            if self._ended is not None:
                # Without the loop nobody is left to enter.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(_finish, self._ended)

    def end(self) -> asyncio.Future[None]:
        """Return a future that is done when the thread has left the call."""
        # Before the look: of this and the thread's own, the later one sees the other.
        self._ended = self._loop.create_future()
        if not self._is_on:
            _finish(self._ended)
        return self._ended


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _is_async(call: object) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - what kind it is, not whether
    )


async def _outlast(job: asyncio.Future[Any]) -> None:
    # The handler has ended only when its thread has: until then it is not entered
    # again, and whoever cancels it decides how long to wait.
    while not job.done():
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:
            continue
    if not job.cancelled():
        job.exception()
