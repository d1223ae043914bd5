"""What the bridge may use of a queue: the few things that another thread needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from batchqueue_async._engine.failure_log import FailureLog
from batchqueue_async._engine.flushing import Flusher
from batchqueue_async._engine.intake import Intake
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.lifecycle import Lifecycle
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.placement import SelectorPlacement
from batchqueue_async._engine.state import State

T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class Port(Generic[T]):
    """Thread-safe where said; the rest is called on the queue's loop."""

    loop: asyncio.AbstractEventLoop
    waits_when_full: bool
    sole: Partition[T] | None
    """Where every item goes, if there is only one partition and stays so."""
    choose: Callable[[T], Partition[T]] | None
    """Asks a custom selector, under the shared guard; None where types decide."""
    routes: dict[type, Partition[T]]
    """Read by other threads for types whose partition is settled."""
    partitions: list[Partition[T]]
    runs: Callable[[Sequence[T]], Sequence[tuple[Partition[T], Sequence[T]]]]
    """Sorts a chunk by partition; safe under the shared guard."""
    own_work: OwnWork
    """What its handlers and drain tasks wait for, and which handler calls."""
    is_over: Callable[[], bool]
    """Whether shutdown has begun; not where its loop has ended without one."""
    has_ended: Callable[[], bool]
    """Whether shutdown is complete."""
    refuse_fork: Callable[[], None]
    """Raises in a forked child, where the queue is not usable."""
    notice: Callable[[Partition[T]], None]
    """On the loop: items, or waiting producers, came to a partition."""
    share: Callable[[AbstractContextManager[Any]], None]
    """On the loop: from now on other threads put, under this guard."""
    open_log: Callable[[], FailureLog]
    flush: Callable[[float | None, FailureLog], Coroutine[Any, Any, None]]
    inbox: object = None
    """What the bridge keeps with the queue; they live and die together."""


def open_port(
    layout: Layout[T], lifecycle: Lifecycle[T], intake: Intake[T], flusher: Flusher[T]
) -> Port[T]:
    """Return the port of a queue that runs on the running loop."""
    placement = layout.placement
    return Port(
        loop=asyncio.get_running_loop(),
        waits_when_full=intake.waits,
        sole=placement.sole,
        choose=placement.choose if isinstance(placement, SelectorPlacement) else None,
        routes=placement.routes,
        partitions=layout.partitions,
        runs=intake.runs,
        own_work=lifecycle.own_work,
        is_over=lambda: lifecycle.is_shut_down,
        has_ended=lambda: lifecycle.state is State.CLOSED,
        refuse_fork=lifecycle.refuse_fork,
        notice=lifecycle.notice,
        share=layout.share,
        open_log=layout.failures.open,
        flush=flusher.flush,
    )
