"""The way in where items have sizes: each is measured once, before all else."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from batchqueue_async._chunks import SIZED_LENGTH
from batchqueue_async._engine.intake import Intake
from batchqueue_async._engine.partitions.byte_budget import (
    ByteBudget,
    Measured,
    measured,
    one_measured,
)
from batchqueue_async._engine.partitions.chunk_by_partition import Placement, Run
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.sized_partition import SizedPartition
from batchqueue_async._engine.partitions.wait_for_room import Tally
from batchqueue_async._policies.choices import Offer
from batchqueue_async._policies.sizing import checked, note_item

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


class SizedIntake(Intake):
    """Places measured items only, and tells drain tasks of the sizes that come."""

    __slots__ = ("_budget", "_most", "_routes", "_size_of")

    def __init__(self, parts: Parts, budget: ByteBudget) -> None:
        super().__init__(parts)
        self._budget, self._routes = budget, parts.placement.routes
        self._size_of, self._most = budget.size_of, budget.capacity

    @property
    def chunk_length(self) -> int:
        return SIZED_LENGTH

    def try_put(self, item: object) -> Run | None:
        partition: Any = self._sole or self._routes.get(type(item))
        # As in the hot path of others, the loop itself is asked for at edges only.
        is_quick = (
            partition is not None
            and partition.open_slots > 0
            and get_ident() == self._parts.thread
            and not partition.is_open_to_threads
        )
        if not (is_quick or self.admits()):
            return self.refused(item)
        if partition is None:
            partition = self._placement.partition_of(item)
        try:
            size: Any = self._size_of(item)
        except Exception as error:
            note_item(error, item)
            raise
        if type(size) is not int or not 0 <= size <= self._most:
            size = checked(size, self._most)
        elif is_quick and partition.put_one(item, size):
            return None
        if is_quick and not self.admits():
            return self.refused(item)
        if partition.put_anywhere(item, size):
            return None
        chunk = one_measured(item, size)
        return None if self._offer(partition, chunk, Tally()) else (partition, chunk)

    def offer(self, item: object) -> Offer:
        waker = self._offered_to()
        if waker is None:
            self.refuse((item,))
            return Offer.CLOSED
        partition = self._sole or self._placement.partition_of(item)
        size = self._budget.measure(item)
        if cast("SizedPartition[Any]", partition).put_anywhere(item, size) or waker.put(
            partition, one_measured(item, size)
        ):
            return Offer.ACCEPTED
        partition.reject(1)
        if partition.is_closed:
            return Offer.CLOSED
        # Lingering items take up the room: have the drain tasks look.
        waker.post(partition)
        return Offer.FULL

    def put_whole(self, chunk: list[Any]) -> bool:
        """Return False: the sizes of the items have to be asked for first."""
        return False

    async def put_many(self, chunk: Sequence[Any], placed: Tally) -> None:
        before = placed.count
        known, error = measured(chunk, self._budget.measure)
        await super().put_many(known, placed)
        # If the queue closed meanwhile, the item that has no size was not reached.
        is_reached = placed.count == before + len(known) or not self._waits
        if error is not None and is_reached:
            raise error

    def _place(self, chunk: Sequence[Any], placed: Tally) -> list[Run]:
        rest: list[Run] = []
        known = cast("Measured[Any]", chunk)
        for partition, run in measured_runs(known, self._placement):
            if partition.accept_at_once(run, placed):
                continue
            count = self._offer(partition, run, placed)
            if count < len(run):
                rest.append((partition, run[count:]))
        return rest

    def _offer(
        self, partition: Partition[Any], chunk: Sequence[Any], placed: Tally
    ) -> int:
        count, coming = 0, len(chunk)
        if partition.has_room:
            # Before they are accepted: see `Partition.notify`.
            cast("SizedPartition[Any]", partition).announce(
                cast("Measured[Any]", chunk)
            )
            count = partition.offer(chunk, placed)
        # If all items are in, no call follows, in which an error could be raised.
        if count < coming:
            self._budget.tell_owners()
        return count


def measured_runs(
    chunk: Measured[Any], placement: Placement
) -> Sequence[tuple[Partition[Any], Measured[Any]]]:
    """Return a chunk's items by partition; on any thread."""
    if not chunk:
        return []
    if (sole := placement.sole) is not None:
        return [(sole, chunk)]
    runs: dict[Partition[Any], Measured[Any]] = {}
    for item, size in zip(chunk, chunk.sizes, strict=True):
        partition = placement.partition_of(item)
        run = runs.get(partition)
        if run is None:
            run = runs[partition] = Measured()
        run.add(item, size)
    return list(runs.items())
