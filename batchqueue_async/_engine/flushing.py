"""Waits until all that was accepted before is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from batchqueue_async._engine.failure_log import FailureLog
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration
from batchqueue_async._policies.errors import DeliveryError

T = TypeVar("T")


class Flush(Generic[T]):
    """One caller's flush of one queue."""

    def __init__(self) -> None:
        self._partitions: list[Partition[T]] = []
        self._missing = 0
        self._settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def settle(
        self,
        partitions: Iterable[Partition[T]],
        notice: Callable[[Partition[T]], None],
    ) -> None:
        """Wait for the items that the partitions have accepted by now."""
        for partition in partitions:
            if partition.watch(self):
                self._partitions.append(partition)
                self._missing += 1
        if not self._missing:
            return
        for partition in self._partitions:
            notice(partition)
        try:
            await self._settled
        finally:
            for partition in self._partitions:
                partition.unwatch(self)

    def reached(self) -> None:
        """A partition has settled what was waited for."""
        self._missing -= 1
        if not self._missing and not self._settled.done():
            self._settled.set_result(None)


async def call_on_flush(
    registrations: Iterable[Registration],
    hooks: Hooks,
    wake: Callable[[], None],
    log: FailureLog,
) -> None:
    """Have the drain tasks call `on_flush`; what it raised is a failure."""
    answers = [
        hooks.request_flush(registration)
        for registration in registrations
        if registration.on_flush is not None
    ]
    if not answers:
        return
    wake()
    try:
        for answer in answers:
            error = await answer
            if error is not None:
                log.add("on_flush", [None], error)
    finally:
        for answer in answers:
            answer.cancel()


def raise_failures(name: str, log: FailureLog) -> None:
    """Raise what the log holds, and start it anew."""
    count, failures = log.clear()
    if count:
        raise DeliveryError(name, count, failures)
