"""Whom a queue lets in at all: by its state, and by the loop that asks."""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from batchqueue_async._engine.lifecycle.state import State, admits
from batchqueue_async._engine.partitions.partition import Partition

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.chunk_by_partition import Run
    from batchqueue_async._engine.queue_parts import Parts

# Looked up once: on Python 3.11, enum access takes longer than all else here.
RUNNING: Final = State.RUNNING

# Never has room: stands for the partition of a type that has none yet.
NOWHERE: Final[Partition[Any]] = Partition(0, 1, 1)

# Stands for the partition of an item that has been counted as refused.
_NOBODYS: Partition[Any] = Partition(0, 1, 1)
_NOBODYS.close()


class Admission:
    """Admits items, or counts them as refused."""

    __slots__ = ("_parts", "_placement")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._placement = parts.placement

    def admits(self) -> bool:
        """Whether items may come in now; raises what `admits` of the state does."""
        parts = self._parts
        if parts.state is RUNNING and _get_running_loop() is parts.loop:
            return True
        return admits(parts)

    def refused(self, item: object) -> Run:
        """Count an item that came after closing, with which nobody is to wait."""
        self.refuse((item,))
        return _NOBODYS, ()

    def refuse(self, chunk: Sequence[Any]) -> None:
        """Count items that came after closing, where they would have gone."""
        for item in chunk:
            try:
                partition = self._placement.partition_of(item)
            except Exception:  # noqa: BLE001 - refused it is, whatever the selector says
                partition = self._placement.partitions[0]
            partition.reject(1, closed=True)
