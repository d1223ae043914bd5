"""Waits until all that was accepted before is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from batchqueue_async._engine.failure_log import FailureLog
from batchqueue_async._engine.handler_waits import FlushWait
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.lifecycle import Lifecycle
from batchqueue_async._engine.registration import Registration
from batchqueue_async._engine.state import State
from batchqueue_async._policies.errors import DeliveryError

T = TypeVar("T")


class _Settling:
    """One caller's wait for the positions that it saw."""

    def __init__(self) -> None:
        self.missing = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reached(self) -> None:
        self.missing -= 1
        if not self.missing and not self.done.done():
            self.done.set_result(None)


class Flusher(Generic[T]):
    """Flushes one queue, for everybody who asks."""

    __slots__ = (
        "_layout",
        "_lifecycle",
        "_own_work",
    )

    def __init__(self, layout: Layout[T], lifecycle: Lifecycle[T]) -> None:
        self._layout = layout
        self._lifecycle = lifecycle
        self._own_work = lifecycle.own_work

    async def flush(self, timeout: float | None, log: FailureLog) -> None:
        """Settle what is accepted by now, call `on_flush`, and raise what `log` says.

        Of the calling handler's own queue, what waits for that handler is left out.
        """
        self._lifecycle.require_own_loop()
        async with asyncio.timeout(timeout):
            settling = _Settling()
            wait = self._own_work.flush(settling)
            if wait is None:
                await self._flush(settling, log, None)
            else:
                async with wait:
                    wait.note()
                    await self._flush(settling, log, wait)
        count, failures = self._layout.failures.clear(log)
        if count:
            raise DeliveryError(self._lifecycle.name, count, failures)

    async def _flush(
        self, settling: _Settling, log: FailureLog, wait: FlushWait | None
    ) -> None:
        await self._settle(settling, wait)
        if self._lifecycle.state is State.RUNNING:
            await self._call_on_flush(log, wait)

    async def _settle(self, settling: _Settling, wait: FlushWait | None) -> None:
        waits_for = self._waits_for(wait)
        owners = self._layout.ownership.last_owners()
        watched = [
            partition
            for partition, owner in zip(self._layout.partitions, owners, strict=True)
            if not waits_for(owner) and partition.watch(settling)
        ]
        if not watched:
            return
        settling.missing = len(watched)
        self._lifecycle.expect(is_due=True)
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

    async def _call_on_flush(self, log: FailureLog, wait: FlushWait | None) -> None:
        """Call it for all together; what it raised is a failure."""
        handlers, hooks = self._layout.handlers, self._lifecycle.hooks
        calls = [
            hooks.flush(registration, self._layout.home_owner(registration))
            for registration in (*handlers, *handlers.retired)
            if registration.on_flush is not None
            and not self._is_in_the_way(registration, wait)
        ]
        if wait is not None and calls:
            wait.hooks = [node for _, node in calls]
            wait.begin()
        for ending, _ in calls:
            if wait is not None:
                await wait.until(ending)
            error = await asyncio.shield(ending)
            if error is not None:
                log.add("on_flush", [None], error)

    def _waits_for(self, wait: FlushWait | None) -> Callable[[int | None], bool]:
        """Return whether a drain task waits for the handler that flushes, if one does.

        Found out once for each: of the partitions there may be many.
        """
        if wait is None:
            return lambda _: False
        known: dict[int | None, bool] = {}
        call = wait.call

        def waits_for(drain_task: int | None) -> bool:
            if drain_task not in known:
                known[drain_task] = self._own_work.waits_for(drain_task, call)
            return known[drain_task]

        return waits_for

    def _is_in_the_way(
        self, registration: Registration, wait: FlushWait | None
    ) -> bool:
        if wait is None or wait.call.work is not self._own_work:
            return False
        # A flush from the handler itself, or the consumer: it is inside of itself.
        if registration.gate is wait.call.gate:
            return True
        home = self._layout.home_owner(registration)
        return self._own_work.waits_for(home, wait.call)
