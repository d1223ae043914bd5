"""Waits until all that was accepted before is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

from batchqueue_async._engine.handlers.flush_wait import FlushWait
from batchqueue_async._engine.handlers.handler_lock_and_call import current_call
from batchqueue_async._engine.lifecycle.state import ENDED, State, require_own_loop
from batchqueue_async._policies.errors import BatchQueueError, DeliveryError

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerLock
    from batchqueue_async._engine.handlers.registration import Registration
    from batchqueue_async._engine.partitions.kept_failures import FailureLog
    from batchqueue_async._engine.queue_parts import Parts


class _Settling:
    """One caller's wait until the positions that it watches are settled."""

    def __init__(self) -> None:
        self.missing = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reached(self) -> None:
        if self.missing == 1 and not self.done.done():
            self.done.set_result(None)
        # Last: if a signal handler raises before this, `reached` is called again.
        self.missing -= 1


class Flush:
    def __init__(self, parts: Parts, log: FailureLog) -> None:
        self._parts = parts
        self._log = log
        # The wait of the handler that flushes, if one does.
        self._wait: FlushWait | None = None

    async def run(self, timeout: float | None) -> None:
        """Wait until all that is accepted is settled; raise the failures in `log`."""
        await self.settle(timeout)
        if (error := self.report()) is not None:
            raise error

    def report(self) -> DeliveryError | None:
        """Return the failures in `log`, if any, as one error, and clear the log."""
        count, failures = self._parts.failures.clear(self._log)
        return DeliveryError(self._parts.name, count, failures) if count else None

    async def settle(self, timeout: float | None) -> None:
        """Wait until what is accepted by now is settled, and call `on_flush`.

        If a handler flushes, partitions and hooks that wait for it are left out.
        """
        require_own_loop(self._parts)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                await self._run_for_caller()
        except TimeoutError as error:
            if limit.expired():
                self.tell_late(error, timeout)
            raise

    def tell_late(self, error: TimeoutError, timeout: float | None) -> None:
        told = f"queue {self._parts.name!r} was not flushed within {timeout} s"
        error.args = (told,)

    async def _run_for_caller(self) -> None:
        settling = _Settling()
        call = current_call()
        if call is None:
            await self._run(settling)
        else:
            self._wait = FlushWait(call, self._parts.detector, settling)
            async with self._wait:
                self._wait.note()
                await self._run(settling)

    async def _run(self, settling: _Settling) -> None:
        parts = self._parts
        was_alive = parts.state in (State.RUNNING, State.CLOSING)
        await self._settle(settling)
        if parts.state is State.RUNNING:
            await self._call_on_flush()
        is_closing = parts.state is State.CLOSING
        if was_alive and parts.state in ENDED:
            # The deadline came in the turn in which the last item was settled.
            is_closing = self._log.is_empty
        if is_closing and self._wait is None:
            await self._await_on_close()

    async def _settle(self, settling: _Settling) -> None:
        waits_for, wait = self._waits_for(), self._wait
        owners = self._parts.ownership.last_owners()
        watched = [
            partition
            for partition, owner in zip(self._parts.partitions, owners, strict=True)
            if not waits_for(owner) and partition.watch(settling)
        ]
        if not watched:
            return
        settling.missing = len(watched)
        self._parts.tasks.expect(is_due=True)
        try:
            if wait is None:
                await settling.done
            else:
                wait.partitions = watched
                wait.begin()
                await wait.until(settling.done)
        finally:
            for partition in watched:
                partition.accounts.unwatch(settling)

    async def _call_on_flush(self) -> None:
        """Call each handler's `on_flush`; what one raises is added to the failures."""
        handlers, hooks, wait = self._parts.handlers, self._parts.hooks, self._wait
        hooks.bring_flushes_on()
        # One registration of each handler, whatever its types.
        told: dict[HandlerLock, Registration] = {}
        for registration in (*handlers, *handlers.retired):
            if registration.on_flush and not self._is_in_the_way(registration):
                told.setdefault(registration.lock, registration)
        calls = [
            hooks.flush(registration, hooks.home_owner(registration))
            for registration in told.values()
        ]
        if wait is not None and calls:
            wait.hooks = [node for _, node in calls]
            wait.begin()
        for ending, _ in calls:
            if wait is not None:
                await wait.until(ending)
            error = await asyncio.shield(ending)
            if error is not None:
                self._parts.failures.add_to(self._log, error)

    async def _await_on_close(self) -> None:
        """In a shutdown wait for `on_close`, which hands on what `on_flush` would."""
        parts = self._parts
        handlers = (*parts.handlers, *parts.handlers.retired)
        if all(each.on_flush is None for each in handlers):
            return
        await parts.lifecycle.ended()
        for name in parts.hooks.not_closed:
            error = BatchQueueError(f"on_close of {name} did not complete")
            parts.failures.add_to(self._log, error)

    def _waits_for(self) -> Callable[[int | None], bool]:
        """Return a function: whether a drain task waits for the handler that flushes.

        It finds out once per drain task, since there may be many partitions.
        """
        if self._wait is None:
            return lambda _: False
        return cache(partial(self._parts.detector.waits_for, call=self._wait.call))

    def _is_in_the_way(self, registration: Registration) -> bool:
        detector, wait = self._parts.detector, self._wait
        if wait is None or wait.call.detector is not detector:
            return False
        # This very handler flushes: its `on_flush` would wait for its own lock.
        if registration.lock is wait.call.lock:
            return True
        home = self._parts.hooks.home_owner(registration)
        return detector.waits_for(home, wait.call)
