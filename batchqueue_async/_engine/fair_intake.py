"""The way in where keys share batches: most items find their key's buffer open."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, cast

from batchqueue_async._engine.intake import Intake
from batchqueue_async._engine.partitions.chunk_by_partition import Run
from batchqueue_async._policies.selectors import PLAIN_KEYS, FairSelector

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.fair_partition import FairPartition
    from batchqueue_async._engine.partitions.key_buffer import KeyBuffer
    from batchqueue_async._engine.queue_parts import Parts


class FairIntake(Intake):
    """Asks for an item's key once, and looks for its buffer among the open ones first.

    Those of plain keys are known by one look into a dict, which calls nothing. It is
    empty in a queue that is closed, or open to threads.
    """

    __slots__ = ("_fair", "_key_of", "_near", "_selector")

    def __init__(self, parts: Parts, selector: FairSelector[Any, Any]) -> None:
        super().__init__(parts)
        self._selector = selector
        self._key_of: Callable[[Any], Hashable] = selector.key
        self._fair = cast("list[FairPartition[Any]]", parts.partitions)
        # One for all partitions: equal keys are in the same one.
        self._near: dict[Hashable, KeyBuffer[Any]] = {}
        for partition in self._fair:
            partition.near = self._near

    def try_put(self, item: object) -> Run | None:
        # As in the hot path of others, the loop itself is asked for at edges only.
        if not self._near or get_ident() != self._parts.thread:
            return super().try_put(item)
        key = self._key_of(item)
        if type(key) not in PLAIN_KEYS:
            key, buffer = self._selector.comparable(key), None
        elif (buffer := self._near.get(key)) is not None and buffer.put_one(item):
            return None
        if not self.admits():
            return self.refused(item)
        if buffer is None:
            buffer = self._fair[hash(key) % len(self._fair)].buffer_of(key)
        if buffer.append(item) or self._try_offer(buffer, item):
            return None
        return buffer, (item,)
