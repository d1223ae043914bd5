"""How a producer that finds a partition full gives way to its drain task, for one turn.

Where the drain task looks again in the loop's next turn, it takes before the producer
runs again, so a bare yield is all the waiting there is: nothing is placed for the
producer meanwhile, nor is to be taken back.

It is ahead of all that come meanwhile. Whoever does has it stand in line first
(`WaitingLine.join`), where all are served as ever.

Nor has any item to tell a drain task that looks again in the next turn that a batch is
due or the partition full. So the partition has *no edges* until the next take: the hot
path fills it to the last place, and `Partition.is_due` has the drain task not nap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.wait_for_room import ServedWaiter


def put_after_giving_way(partition: Partition[Any], waiter: ServedWaiter) -> bool:
    """Accept the item of a producer whose turn has come; else have it stand in line."""
    owner = partition.owner
    looks_next = owner is not None and owner.is_over_next_turn
    if not looks_next:
        partition.notify(1)
    filled_at = partition.filled_at if partition.items else partition.clock()
    line, count = partition.line, len(partition.items) + 1
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
        waiter.wants, waiter.accepted, waiter.chunk = 0, 1, ()
        line.giving_way, line.spare, partition.has_fast_path = None, waiter, True
        partition.filled_at = filled_at
        limit, due = partition.full_at, partition.due_size
        if not looks_next:
            limit = (due if count < due else limit) - 1
        partition.limit = partition.guarded_limit = limit
        return True
    if waiter.line is None:
        partition.wait_in_line(waiter)
    else:
        # Whoever put it there may have been struck before it was served.
        with partition.guard:
            partition.serve_line()
    # It may have been placed meanwhile.
    return waiter.acknowledge()
