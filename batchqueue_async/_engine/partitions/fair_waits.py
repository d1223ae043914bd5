"""Who waits in a fair partition, and for how long: what its buffers know, together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from batchqueue_async._engine.partitions.ages import Ages
from batchqueue_async._engine.partitions.waiting_line import Waiter, WaitingLine

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.key_buffer import KeyBuffer
    from batchqueue_async._engine.partitions.partition import Partition

Buffers: TypeAlias = "Callable[[], Sequence[KeyBuffer[Any]]]"


class FairLine(WaitingLine):
    """All producers that wait for room in any of the buffers; nobody joins it."""

    __slots__ = ("_buffers",)

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        super().__init__()

    @property
    def head(self) -> Waiter | None:
        """Somebody who waits, or None."""
        return next(iter(self), None)

    @head.setter
    def head(self, head: Waiter | None) -> None:
        """Nothing: producers wait at their buffers."""

    def __iter__(self) -> Iterator[Waiter]:
        for buffer in self._buffers():
            yield from buffer.line


class FairAges(Ages):
    """The oldest item is the oldest one of a buffer."""

    __slots__ = ("_buffers",)

    def __init__(self, buffers: Buffers) -> None:
        super().__init__()
        self._buffers = buffers

    def age(self, partition: Partition[Any]) -> float:
        del partition
        return max((each.ages.age(each) for each in self._buffers()), default=0.0)
