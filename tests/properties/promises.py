"""The promises that hold at every moment, of partitions, lines and owners."""

from batchqueue_async import BatchQueue, BatchQueueStats
from batchqueue_async._engine.partitions.byte_budget import ByteBudget
from batchqueue_async._engine.partitions.ownership import Ownership
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.sized_partition import SizedPartition
from tests.properties.gated_handler import Item
from tests.support.oracle import check_accounts


def check_room(partition: Partition[Item], size: int, *, is_closing: bool) -> None:
    """C1: never too full; C2: a slot is taken, or reserved, or nobody waits for it."""
    line, held = partition.line, len(partition.items) + partition.line.reserved
    assert held <= size, f"C1: {held} of {size} slots are in use"
    if isinstance(partition, SizedPartition):
        return
    if len(line) and not is_closing:
        unserved = sum(each.wants - each.granted for each in line)
        assert held == size or not unserved, "C2: room, and yet somebody waits"


def check_sizes(budget: ByteBudget, partitions: list[Partition[Item]]) -> None:
    """C5: what is counted is what is there, and fits; nobody waits beside his room."""
    sized = [each for each in partitions if isinstance(each, SizedPartition)]
    for partition in sized:
        sizes = [size_of(item) for item in partition.items]
        assert list(partition.sizes) == sizes, "C5: sizes are not those of the items"
    assert budget.waiting == sum(sum(each.sizes) for each in sized), "C5: waiting"
    in_line = sum(each.line.reserved_size for each in sized)
    assert budget.reserved == in_line, "C5: reserved"
    assert budget.used <= budget.capacity, f"C5: {budget.used} of {budget.capacity}"
    first = budget.first
    if first is not None:
        waiter = first.line.unserved
        assert waiter is not None
        (size,) = first.line._lacking(waiter, 1)
        assert budget.used + size > budget.capacity, "C5: room, and yet somebody waits"
        numbers = [each.lacks_room for each in sized]
        oldest = min(each for each in numbers if each is not None)
        assert first.lacks_room == oldest, "C5: overtaken"
    else:
        assert all(each.lacks_room is None for each in sized), "C5: out of the line"


def size_of(item: Item) -> int:
    """Return what an item of a sized machine counts for: from 0 to 4."""
    return item.number * 3 % 5


def check_take(partition: Partition[Item], max_batch: int | None) -> None:
    """C1: one take at a time, and none above `max_batch`."""
    in_flight = partition.accounts.in_flight
    assert max_batch is None or in_flight <= max_batch, "C1: a take above max_batch"


def check_owners(
    ownership: Ownership, partitions: list[Partition[Item]], *, is_closing: bool
) -> None:
    """E4: one owner or in a handoff, and the drain tasks' lists say the same."""
    owned = [ownership.owned_by(each) for each in range(ownership.drain_tasks)]
    for partition in partitions:
        index, owner = partition.index, ownership.owner_of(partition.index)
        owners = [each for each, own in enumerate(owned) if index in own]
        expected = [] if owner is None else [owner]
        assert owners == expected, f"E4: {index} of {owner} is in lists of {owners}"
        assert owner is not None or not is_closing, "E4: closing, and not owned"


def check_stats(queue: BatchQueue[Item]) -> BatchQueueStats:
    """A1 and E4, as the queue says it to its user; and its drain tasks live."""
    stats = check_accounts(queue)
    assert isinstance(stats, BatchQueueStats)
    for drain_task in stats.drain_tasks:
        owners = {stats.partitions[p].owner for p in drain_task.partitions}
        assert owners <= {drain_task.index}, f"E4: {drain_task.index} lists {owners}'s"
    for task in queue._parts.tasks.running:
        if task.done() and not task.cancelled() and task.exception():
            # No assertion: a planted bug is to be found, not to crash.
            message = f"{task.get_name()} died"
            raise RuntimeError(message) from task.exception()
    return stats
