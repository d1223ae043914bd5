"""How a producer that finds a partition full gives way to its drain task, for one turn.

Where the drain task looks again in the loop's next turn, a bare yield is all that it
takes: a quarter of what a place in the line costs. The room that comes is kept for the
producer, which is ahead of all that come meanwhile. These stand in line, and are served
a turn later for it; so nobody gives way where several have waited lately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Sequence
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._engine.partitions.wait_for_room import put_one_in_turn

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.waiting_line import LoopWaiter

T = TypeVar("T")


def put_one(
    partition: Partition[T], chunk: Sequence[T], loop: asyncio.AbstractEventLoop
) -> Awaitable[bool]:
    """Accept a single item, in a partition that `serves_on_loop` and has no room now.

    Awaited, it returns whether the item was accepted; else the partition has closed.
    """
    if (
        partition.has_fast_path
        and not partition.line.is_contended
        and partition.pausing is None
        and (owner := partition.owner) is not None
        and owner.is_over_next_turn
    ):
        return _put_after_a_turn(partition, chunk, loop)
    return put_one_in_turn(partition, chunk, loop)


@coroutine
def _put_after_a_turn(
    partition: Partition[T], chunk: Sequence[T], loop: asyncio.AbstractEventLoop
) -> Generator[Any, None, bool]:
    partition.line.is_kept, partition.has_fast_path = True, False
    partition.limit = partition.guarded_limit = 0
    try:
        # Nothing of it is in meanwhile: cancelled here, it leaves nothing.
        yield
        partition.notify(1)
        if _accept_first(partition, chunk):
            return True
        join = partial(_join_first, partition)
        return (yield from put_one_in_turn(partition, chunk, loop, join))
    except BaseException:
        try:
            _pass_on(partition)
        finally:
            # Again: a call that was struck has either done nothing, or all.
            _pass_on(partition)
        raise


def _accept_first(partition: Partition[T], chunk: Sequence[T]) -> bool:
    """Accept the item that room was kept for, unless others have come meanwhile."""
    line = partition.line
    line.is_kept = False
    partition.has_fast_path = not (
        line.head
        or partition.is_closed
        or partition.is_open_to_threads
        or partition.ages.clock
        or partition.accounts.watchers
    )
    return partition.accept_at_once(chunk)


def _join_first(partition: Partition[Any], waiter: LoopWaiter) -> None:
    with partition.guard:
        partition.has_fast_path = False
        partition.limit = partition.guarded_limit = 0
        partition.line.join_first(waiter)
        partition.serve_line()


def _pass_on(partition: Partition[Any]) -> None:
    """Give the room that was kept for a producer to those that stand behind it."""
    with partition.guard:
        partition.line.is_kept = False
        partition.serve_line()
