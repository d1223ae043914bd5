"""Runs a blocking handler off the loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._engine.registration import consume_of
from batchqueue_async._policies.handlers import BatchHandler, HandlerLike
from batchqueue_async._wording import shown

if TYPE_CHECKING:
    from anyio import CapacityLimiter

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
            msg = (
                f"handler must be blocking to run in a thread, got async {shown(each)}"
            )
            raise TypeError(msg)
    return _InThread(handler, consume)


class _InThread:
    """The handler's methods as coroutines; it has the hooks that the handler has."""

    def __init__(self, handler: object, consume: Callable[[list[Any]], object]) -> None:
        # A fifth of the time that importing the package would take.
        from anyio import CapacityLimiter, to_thread  # noqa: PLC0415

        self._run_sync = to_thread.run_sync
        self._new_limiter = partial(CapacityLimiter, 1)
        self._limiter: CapacityLimiter | None = None
        self._consume = consume
        name = getattr(handler, "__qualname__", type(handler).__qualname__)
        self.__qualname__ = f"in_thread({name})"
        for name in _HOOKS:
            hook = getattr(handler, name, None)
            if callable(hook):
                setattr(self, name, partial(self._run, hook))

    async def consume(self, batch: list[Any], /) -> None:
        await self._run(self._consume, batch)

    async def _run(self, call: Callable[..., object], *arguments: object) -> None:
        if self._limiter is None:
            self._limiter = self._new_limiter()
        job = asyncio.ensure_future(
            self._run_sync(_kept, call, *arguments, limiter=self._limiter)
        )
        try:
            result, ending = await asyncio.shield(job)
        except asyncio.CancelledError:
            await _outlast(job)
            raise
        if ending is not None:
            raise ending
        if inspect.isawaitable(result) or inspect.isgenerator(result):
            if inspect.iscoroutine(result):
                result.close()
            msg = (
                f"handler must be blocking to run in a thread, got async {shown(call)}"
            )
            raise TypeError(msg)


def _kept(
    call: Callable[..., object], *arguments: object
) -> tuple[object, BaseException | None]:
    # What is to end the program would end the thread, and then the loop, before the
    # drain task gets to know of it.
    try:
        return call(*arguments), None
    except (KeyboardInterrupt, SystemExit) as ending:
        return None, ending


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
