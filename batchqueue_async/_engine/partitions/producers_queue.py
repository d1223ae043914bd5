"""What a partition has of `asyncio.Queue`, and what it refuses."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from batchqueue_async._engine.partitions.accounts import Accounts
from batchqueue_async._engine.partitions.wait_for_room import Tally, put_in_turn
from batchqueue_async._engine.partitions.waiting_line import WaitingLine
from batchqueue_async._policies.errors import BatchQueueError

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition

T = TypeVar("T")


class ProducersQueue(asyncio.Queue[T]):
    """An `asyncio.Queue` for producers: only its owner takes from it.

    It has the bound, the queries (`qsize`, `empty`, `full`, `maxsize`) and the ways in
    (`put`, `put_nowait`), whose items are counted. Only its drain task takes items out,
    by `take`: `get`, `get_nowait`, `join`, `task_done` and `shutdown` refuse.
    """

    __slots__ = ()

    serves_on_loop = True
    """Whether items of producers that wait on the loop are placed for them."""

    has_sizes = False
    """Whether it is a `SizedPartition`, whose items count by their sizes, too."""

    is_served_late = False
    """Whether room is given out now that others made: see `ByteBudget.is_serving`."""

    is_told_once = False
    """Whether its owner is told of few items, and `accept_at_once` takes the others."""

    items: list[T] | deque[T]
    index: int
    line: WaitingLine
    full_at: int
    is_changing: bool
    is_closed: bool
    accounts: Accounts
    guard: AbstractContextManager[Any]
    # How many items came in, if that is counted independently (`AuditedPartition`).
    entered: int | None = None

    @property
    def has_room(self) -> bool:
        """Whether an item gets in now, without waiting in line."""
        return not (
            self.is_closed
            or self.is_changing
            or self.line.head
            or len(self.items) + (self.line.giving_way is not None) >= self.full_at
        )

    def waiting_producers(self) -> int:
        """Return how many wait for room here."""
        if self.line.giving_way is not None:
            return int(len(self.items) >= self.full_at)
        return 0 if self.line.head is None else len(self.line)

    def is_in(self, other: Partition[Any]) -> bool:
        """Whether a take from `other` makes room here."""
        return other is self

    def reject(self, count: int, *, closed: bool = False) -> None:
        """Count refused items; `closed` if the queue accepts none any more."""
        with self.guard:
            self.accounts.rejected += count
            if closed or self.is_closed:
                self.accounts.rejected_closed += count

    def must_tell(self, coming: int = 0) -> bool:
        """Whether the loop has to be told of items that come, or came from a thread."""
        return True

    def must_post(self) -> bool:
        """Whether a thread has to tell the loop of items that came; then it does."""
        return True

    @abstractmethod
    def notify(self, coming: int = 0, *, may_run: bool = False) -> None:
        """Tell the owner that items come, or are there; with `may_run` it runs now."""

    @abstractmethod
    def offer(self, chunk: Sequence[T], tally: Tally | None = None) -> int:
        """Accept as many of the chunk's first items as there is room for."""

    def _format(self) -> str:
        # For `repr`: that of the base class uses attributes that are not there.
        state = "closed" if self.is_closed else "open"
        return f"{self.index} {state} waiting={len(self.items)}"

    def qsize(self) -> int:
        return len(self.items)

    def empty(self) -> bool:
        return not self.items

    def full(self) -> bool:
        """Whether an item would have to wait, or is refused."""
        return not self.has_room

    def put_nowait(self, item: T) -> None:
        """Accept an item.

        Raises:
            asyncio.QueueFull: There is no room, or it is closed.
        """
        self.notify(1)
        if not self.offer(self.chunk_of(item)):
            raise asyncio.QueueFull

    async def put(self, item: T) -> None:
        """Accept an item, once there is room.

        Raises:
            BatchQueueError: It is closed.
        """
        placed = Tally()
        loop = asyncio.get_running_loop()
        partition: Any = self
        await put_in_turn(partition, self.chunk_of(item), placed, loop)
        if not placed.count:
            msg = f"partition {self.index} is closed"
            raise BatchQueueError(msg)

    def chunk_of(self, item: T) -> Sequence[T]:
        """Return an item as what `offer` takes."""
        return (item,)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        msg = f"partition {self.index}: only its drain task takes items, by `take`"
        raise BatchQueueError(msg)

    get = get_nowait = join = task_done = shutdown = _refuse
