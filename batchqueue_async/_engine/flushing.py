"""Waits until all that was accepted before is settled."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from batchqueue_async._engine.failure_log import FailureLog
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.lifecycle import Lifecycle, State
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
            await self._settle()
            if self._lifecycle.state is State.RUNNING:
                await self._call_on_flush(log)
        count, failures = self._layout.failures.clear(log)
        if count:
            raise DeliveryError(self._lifecycle.name, count, failures)

    async def _settle(self) -> None:
        settling = _Settling()
        watched = [
            partition
            for partition in self._layout.partitions
            if not self._own_work.includes(partition) and partition.watch(settling)
        ]
        if not watched:
            return
        settling.missing = len(watched)
        for partition in watched:
            self._lifecycle.notice(partition)
        try:
            await settling.done
        finally:
            for partition in watched:
                partition.accounts.unwatch(settling)

    async def _call_on_flush(self, log: FailureLog) -> None:
        own = self._own_work.drain_task
        answers = [
            self._lifecycle.hooks.request_flush(registration)
            for registration in self._layout.handlers
            if registration.on_flush is not None
            and (own is None or not self._layout.calls(own, registration))
        ]
        if answers:
            self._lifecycle.wake()
        try:
            for answer in answers:
                error = await answer
                if error is not None:
                    log.add("on_flush", [None], error)
        finally:
            for answer in answers:
                answer.cancel()
