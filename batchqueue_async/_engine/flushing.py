"""Waits until all that was accepted before is settled."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from batchqueue_async._engine.failure_log import FailureLog
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.lifecycle import Lifecycle, State
from batchqueue_async._engine.registration import Registration
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

        What the calling handler's own drain task has to do is left out: that waits for
        the handler.
        """
        self._lifecycle.require_own_loop()
        async with asyncio.timeout(timeout):
            with self._own_work.flushing():
                await self._settle()
                if self._lifecycle.state is State.RUNNING:
                    await self._call_on_flush(log)
        count, failures = self._layout.failures.clear(log)
        if count:
            raise DeliveryError(self._lifecycle.name, count, failures)

    async def _settle(self) -> None:
        settling = _Settling()
        owners = self._layout.ownership.last_owners()
        # Asked once for each drain task, and not for each of thousands of partitions.
        left_out = {each for each in set(owners) if self._own_work.blocks_flush(each)}
        watched = [
            partition
            for partition, owner in zip(self._layout.partitions, owners, strict=True)
            if owner not in left_out and partition.watch(settling)
        ]
        if not watched:
            return
        settling.missing = len(watched)
        self._lifecycle.expect(is_due=True)
        try:
            with self._own_work.waiting(lambda: not settling.done.done()):
                await settling.done
        finally:
            for partition in watched:
                partition.accounts.unwatch(settling)

    async def _call_on_flush(self, log: FailureLog) -> None:
        """Call it for all together; what it raised is a failure."""
        handlers, hooks = self._layout.handlers, self._lifecycle.hooks
        calls = [
            hooks.flush(registration, self._layout.home_owner(registration))
            for registration in (*handlers, *handlers.retired)
            if registration.on_flush is not None
            and not self._is_in_the_way(registration)
        ]
        for call in calls:
            error = await asyncio.shield(call)
            if error is not None:
                log.add("on_flush", [None], error)

    def _is_in_the_way(self, registration: Registration) -> bool:
        if registration.item_type is None:
            # A flush from the consumer: it is inside of itself.
            return self._own_work.drain_task is not None
        return self._own_work.blocks_flush(self._layout.home_owner(registration))
