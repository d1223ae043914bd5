"""How a producer that finds a partition full gives way to its drain task, for one turn.

Where the drain task looks again in the loop's next turn, it takes before the producer
runs again, so a bare yield is all the waiting there is: nothing is placed for the
producer meanwhile, nor is to be taken back.

It is ahead of all that come meanwhile. Whoever does has it stand in line first
(`WaitingLine.join`), where all are served as ever.

Nor has anybody to tell a drain task that looks again in the next turn that a batch is
due, or the partition full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.wait_for_room import ServedWaiter


def put_untold(partition: Partition[Any], item: object) -> bool:
    """Accept an item that makes a partition due or full, where nothing else is to do.

    It may be called where its drain task looks again in the loop's next turn.
    """
    if partition.is_changing or not partition.has_fast_path:
        return False
    items: Any = partition.items
    # Not `full_at`: where the oldest items go, there is always room for one more.
    most = partition._maxsize  # noqa: SLF001 - `maxsize` calls
    # For a signal handler that puts the hot path is closed at an edge, too; elsewhere
    # it leaves a place.
    partition.is_changing = True
    try:
        count = len(items)
        if is_in := 0 < count < most:
            items += (item,)
    finally:
        partition.is_changing = False
    is_passed = count + 1 == partition.due_size < most
    # A signal handler may have closed it meanwhile.
    if is_in and is_passed and partition.has_fast_path:
        partition.limit = partition.guarded_limit = most - 1
    return is_in


def put_after_giving_way(partition: Partition[Any], waiter: ServedWaiter) -> bool:
    """Accept the item of a producer whose turn has come; else have it stand in line."""
    if not ((owner := partition.owner) and owner.is_over_next_turn):
        partition.notify(1)
    filled_at = partition.filled_at if partition.items else partition.clock()
    count, due = len(partition.items) + 1, partition.due_size
    line = partition.line
    items: Any = partition.items
    # No call from here on, after which a signal handler might raise.
    if (
        line.giving_way is waiter
        and count <= partition.full_at
        and not (partition.is_closed or partition.is_open_to_threads)
        and partition.ages.clock is None
        and partition.accounts.watchers is None
    ):
        items += waiter.chunk
        # The rest of it is as it was made.
        waiter.chunk = ()
        line.giving_way, line.spare, partition.has_fast_path = None, waiter, True
        partition.filled_at = filled_at
        limit = due if count < due else partition.full_at
        partition.limit = partition.guarded_limit = limit - 1
        return True
    if waiter.acknowledge():
        # It was put into the line for another one, and its item was placed.
        return True
    if waiter.line is None:
        partition.wait_in_line(waiter)
    else:
        # Whoever put it there may have been struck before it was served.
        with partition.guard:
            partition.serve_line()
    return waiter.acknowledge()
