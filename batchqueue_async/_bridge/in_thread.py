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
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from batchqueue_async._bridge.call_slots import CallSlots, SlottedLock
from batchqueue_async._engine.handlers.handler_lock_and_call import SHARED, HandlerLock
from batchqueue_async._engine.handlers.registration import Attached
from batchqueue_async._functions import (
    attribute_of,
    is_async,
    name_of,
    taker_of,
)
from batchqueue_async._policies.handler_checks import HOOKS, consume_of
from batchqueue_async._policies.handlers import BatchHandler, HandlerLike
from batchqueue_async._results import runs_later
from batchqueue_async._validation import require_int
from batchqueue_async._wording import kind_of, shown

if TYPE_CHECKING:
    from batchqueue_async._bridge.worker import Workers

T = TypeVar("T")


def in_thread(handler: HandlerLike[T], *, concurrency: int = 1) -> BatchHandler[T]:
    """Wrap a blocking handler so that it runs on worker threads.

    By default on one: it is still never entered twice at once, whatever the number of
    drain tasks, and of queues that share it. Its hooks run there, too, and alone in the
    handler. A batch waits for a free thread before its call begins: `handler_timeout`
    and `slow_handler` count from then on. A thread cannot be stopped: at a shutdown
    deadline the call is left behind and its batch is returned.

    The threads are the handler's own, daemons that are named after it. The first one is
    there while a running queue has the handler, since at the interpreter's exit Python
    3.12 and later start none; the others are started when they are needed, and all end
    with the last queue. Called by a handler of yours it takes anyio's, and waits inside
    of that call; unless yours has it as `__wrapped__`, and stands in for it.

    Args:
        handler: An object with `consume(batch)`, or a function; not async.
        concurrency: How many calls of `consume` may run at once. There are no more than
            drain tasks have batches for it: several with a consumer or a selector, or
            where it handles several types. With more than 1 it must be thread-safe. The
            items of one partition are in one call at a time, so their order holds.

    Raises:
        TypeError: The handler is async already, or no handler; or `concurrency` no int.
        ValueError: `concurrency` is less than 1.
    """
    require_blocking(handler, "thread")
    require_int("concurrency", concurrency, at_least=1)
    name = name_of(handler)
    return InThread(handler, f"in_thread({name})", concurrency)


def require_blocking(handler: object, place: str) -> None:
    """Refuse a handler that a thread or process cannot run: none, or an async one."""
    hooks = (attribute_of(handler, name) for name in HOOKS)
    for each in (consume_of(handler), *hooks):
        if is_async(each):
            _refuse_async(each, place)


def _refuse_async(call: object, place: str) -> NoReturn:
    msg = (
        f"handler must be blocking to run in a {place}, got {shown(call)},"
        f" which is async: pass it without in_{place}"
    )
    raise TypeError(msg)


class InThread(Attached):
    """The handler's methods as coroutines; it has the hooks that the handler has."""

    _lock: threading.Lock
    _limiter: Any
    _workers: Workers | None
    _end: Callable[[], object]
    last: Callable[[], object] | None = None
    """Called on one of the threads before they end, with the last queue."""
    stop: Callable[[int], object] | None = None
    """Ends the call that runs on a thread with this identity, if that can be done."""

    def __init__(self, handler: object, name: str, concurrency: int) -> None:
        # Late: it would add a fifth to the time that importing the package takes.
        from anyio import CapacityLimiter, to_thread  # noqa: PLC0415

        self._run_sync = to_thread.run_sync
        self._new_limiter = partial(CapacityLimiter, concurrency)
        self.concurrency = concurrency
        self._forget()
        self._consume: Any = taker_of(handler)
        self.__qualname__ = name
        if hasattr(handler, "tick_every"):
            self.tick_every = handler.tick_every
        for each in HOOKS:
            hook = attribute_of(handler, each)
            if callable(hook):
                setattr(self, each, partial(self._run, hook))

    async def consume(self, batch: list[Any], /) -> None:
        await self._run(self._consume, batch)

    def __repr__(self) -> str:
        return self.__qualname__

    # Spark pickles what a function refers to, such as a configuration with this; the
    # error would name a lock.
    def __reduce__(self) -> NoReturn:
        msg = (
            f"{self.__qualname__} can't be copied, or sent to another process: wrap the"
            " handler there, such as in the function that opens its queue"
        )
        raise TypeError(msg)

    def new_lock(self) -> HandlerLock:
        self._forget_parent()
        return self._slots.new_lock()

    def attach(self, queue: object) -> None:
        self._forget_parent()
        from batchqueue_async._bridge.worker import Workers  # noqa: PLC0415 - anyio's

        with self._lock:
            self._queues.add(queue)
            if self._workers is None:
                # Without these threads `_call` uses anyio's, and fails if it gets none.
                with contextlib.suppress(RuntimeError):
                    workers = Workers(self.__qualname__, self.concurrency)
                    end = weakref.finalize(self, workers.end)
                    end.atexit = False
                    self._workers, self._end = workers, end

    def detach(self, queue: object) -> None:
        self._forget_parent()
        self._slots.loop_may_have_ended()
        with self._lock:
            self._queues.discard(queue)
            if not self._queues and self._workers is not None:
                workers, self._workers = self._workers, None
                if self.last is not None:
                    workers.do(self.last)
                self._end()

    def _forget_parent(self) -> None:
        if self._process != os.getpid():
            # After a fork: the threads and who used them are the parent's.
            self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._queues: weakref.WeakSet[object] = weakref.WeakSet()
        self._limiter = None
        self._workers = None
        self._slots = CallSlots(self.concurrency)

    async def _run(self, call: Callable[..., object], *arguments: object) -> None:
        self._forget_parent()
        held = self._slots.lock_held_here()
        if held is not None:
            await self._run_on_thread(held, call, *arguments)
            return
        # A user's own handler has called it, so no queue has got a slot for the call.
        lock = self._slots.new_lock()
        place = lock.request(SHARED)
        try:
            await place
            await self._run_on_thread(lock, call, *arguments)
        finally:
            lock.withdraw(SHARED, place)

    async def _run_on_thread(
        self, lock: SlottedLock, call: Callable[..., object], *arguments: object
    ) -> None:
        thread_call = _ThreadCall(partial(call, *arguments), lock)
        job = asyncio.ensure_future(self._call(thread_call.run))
        try:
            result, error = await asyncio.shield(job)
        except asyncio.CancelledError:
            if self.stop is not None:
                thread_call.cancel(self.stop)
            await _outlast(job)
            if job.cancelled():
                # The task was cancelled, but the thread goes on, and needs a slot.
                thread_call.outlives_its_task()
            raise
        if error is not None:
            raise error
        if runs_later(result):
            if inspect.iscoroutine(result):
                result.close()
            if inspect.isawaitable(result):
                _refuse_async(call, "thread")
            told = kind_of(result)
            msg = f"handler must be blocking to run in a thread, it returned {told}"
            raise TypeError(msg)

    async def _call(
        self, function: Callable[[], tuple[object, BaseException | None]]
    ) -> tuple[object, BaseException | None]:
        workers = self._workers
        if workers is not None:
            return await workers.run(function)
        if self._limiter is None:
            # Not anyio's default one, which the whole program shares.
            self._limiter = self._new_limiter()
        return await self._run_sync(function, limiter=self._limiter)


class _ThreadCall:
    """One call on a worker thread, which may last longer than the task that made it.

    Whoever cancels all tasks of a loop ends that task, and not the thread.
    """

    def __init__(self, call: Callable[[], object], lock: SlottedLock) -> None:
        self._call = call
        self._lock = lock
        self._is_on = False
        self._is_cancelled = False
        self._thread = 0
        # Not empty if a slot is to be given back; whoever pops from it does that.
        self._owes: list[bool] = []

    def cancel(self, stop: Callable[[int], object]) -> None:
        """Let it not begin any more; if it has, have it stopped."""
        # Set before the look at `_is_on`; the thread sets that before it looks at this.
        # So one of the two sees what the other has set.
        self._is_cancelled = True
        if self._is_on:
            stop(self._thread)

    def run(self) -> tuple[object, BaseException | None]:
        self._thread = threading.get_ident()
        self._is_on = True
        # Before it looks whether the loop is closed: if it is later, the slot stays.
        self._lock.slots.enter_thread(self._lock)
        # Returned, not raised: a SystemExit would end the thread and the loop before
        # the drain task knows of it, and a StopIteration can't be set on a future.
        try:
            if self._is_cancelled or self._lock.is_lost:
                return None, asyncio.CancelledError()
            return self._call(), None
        except BaseException as error:  # noqa: BLE001 - raised on the loop
            return None, error
        finally:
            self._is_on = False
            self._lock.slots.leave_thread(self._lock)
            self._pay()

    def outlives_its_task(self) -> None:
        """Keep a slot until the thread has left; if it has not begun, it never does.

        By the thread itself, since the loop may be closed by then.
        """
        self._lock.slots.overdraw(self._lock)
        # Before the look, as in `cancel`.
        self._owes.append(True)
        self._is_cancelled = True
        if not self._is_on:
            self._pay()

    def _pay(self) -> None:
        with contextlib.suppress(IndexError):
            self._owes.pop()
            self._lock.slots.repay(self._lock)


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
