"""Waits until all that was accepted before is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from batchqueue_async._engine.failure_log import FailureLog
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
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


async def settle_all(
    layout: Layout[T], own_work: OwnWork, notice: Callable[[Partition[T]], None]
) -> None:
    """Wait until all that is accepted by now is settled.

    What the calling handler's own drain task has to do is left out: it would wait for
    the handler.
    """
    settling = _Settling()
    watched = [
        partition
        for partition in layout.partitions
        if not own_work.includes(partition) and partition.watch(settling)
    ]
    if not watched:
        return
    settling.missing = len(watched)
    for partition in watched:
        notice(partition)
    try:
        await settling.done
    finally:
        for partition in watched:
            partition.accounts.unwatch(settling)


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
