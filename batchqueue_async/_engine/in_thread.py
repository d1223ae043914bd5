"""Runs a blocking handler off the loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

from batchqueue_async._engine.registration import consume_of
from batchqueue_async._policies.handlers import BatchHandler, HandlerLike

T = TypeVar("T")

_HOOKS = ("on_idle", "on_flush", "on_close")


def in_thread(handler: HandlerLike[T]) -> BatchHandler[T]:
    """Wrap a blocking handler so that it runs on a worker thread.

    It is still never entered twice at once, whatever the number of drain tasks. Its
    `on_idle`, `on_flush` and `on_close` run there, too. A thread cannot be stopped: at
    a shutdown deadline the call is left behind and its batch is returned.

    Raises:
        TypeError: The handler is async already, or no handler.
    """
    consume = consume_of(handler)
    for each in (consume, *(getattr(handler, name, None) for name in _HOOKS)):
        if _is_async(each):
            msg = f"handler must be blocking to run in a thread, got async {each!r}"
            raise TypeError(msg)
    return _InThread(handler, consume)


class _InThread:
    """The handler's methods as coroutines; it has the hooks that the handler has."""

    def __init__(self, handler: object, consume: Callable[[list[Any]], object]) -> None:
        self._limiter: CapacityLimiter | None = None
        # Set when a call ends whose task was cancelled away from its thread.
        self._left: asyncio.Future[None] | None = None
        self._consume = consume
        self.__qualname__ = f"in_thread({getattr(handler, '__qualname__', handler)})"
        for name in _HOOKS:
            hook = getattr(handler, name, None)
            if callable(hook):
                setattr(self, name, partial(self._run, hook))

    async def consume(self, batch: list[Any], /) -> None:
        await self._run(self._consume, batch)

    async def _run(self, call: Callable[..., object], *arguments: object) -> None:
        if self._limiter is None:
            self._limiter = CapacityLimiter(1)
        while self._left is not None and not self._left.done():
            await asyncio.wait({self._left})
        thread_call = _ThreadCall(partial(call, *arguments))
        job = asyncio.ensure_future(
            to_thread.run_sync(thread_call.run, limiter=self._limiter)
        )
        try:
            result, ending = await asyncio.shield(job)
        except asyncio.CancelledError:
            await _outlast(job)
            if job.cancelled():
                self._left = thread_call.end()
            raise
        if ending is not None:
            raise ending
        if inspect.isawaitable(result) or inspect.isgenerator(result):
            if inspect.iscoroutine(result):
                result.close()
            msg = f"handler must be blocking to run in a thread, got async {call!r}"
            raise TypeError(msg)


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
        # drain task gets to know of it.
        try:
            return self._call(), None
        except (KeyboardInterrupt, SystemExit) as ending:
            return None, ending
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
