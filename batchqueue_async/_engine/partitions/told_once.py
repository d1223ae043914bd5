"""A partition that looks at each item, and tells its owner of few of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._policies.errors import with_accepted

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.wait_for_room import Tally
    from batchqueue_async._engine.partitions.waiting_line import Waiter

T = TypeVar("T")


class ToldOncePartition(Partition[T]):
    """Its owner is told of an item that finds it empty, and of what makes a batch due.

    To be told of each would set its timer anew, and from a thread wake the loop.
    """

    is_told_once = True

    __slots__ = ("is_known", "open_slots")

    def __init__(self, *args: Any) -> None:  # noqa: ANN401 - the base's
        # Whether the owner was told, or saw as it took, that something waits.
        self.is_known = False
        # How many more items meet no edge, as of the last look at the edges: they need
        # not look again. Whatever changes anything but by such items sets it to 0.
        self.open_slots = 0
        super().__init__(*args)

    def accept_at_once(
        self,
        chunk: Sequence[T],
        tally: Tally | None = None,
        *,
        is_given: bool = False,
    ) -> bool:
        """Accept a chunk that meets no edge, on any thread: nobody need be told of it.

        With `is_given` it is copied all the same.
        """
        del is_given
        if not self.is_open_to_threads:
            return self._put_between_edges(chunk, tally)
        is_in = False
        try:
            with self.guard:
                is_in = self._put_between_edges(chunk, tally)
        except BaseException as error:
            with_accepted(error, len(chunk) if is_in else 0)
            raise
        return is_in

    def _put_between_edges(self, chunk: Sequence[T], tally: Tally | None) -> bool:
        """Accept a chunk that meets no edge, under the guard; subclasses count it."""
        raise NotImplementedError

    def _is_between_edges(self, more: int) -> bool:
        """Whether so many items get in, and the owner knows that something waits."""
        count = len(self.items)
        return (
            self.is_known
            and 0 < count <= self._maxsize - more
            and not self.is_closed
            and self.line.head is None
            and self.entered is None
        )

    def must_tell(self, coming: int = 0) -> bool:
        return not (self.is_known and self.items) or self.is_due(coming)

    def must_post(self) -> bool:
        if not self.must_tell():
            return False
        # Before the loop is told, since that notes what it finds. What comes until then
        # need not tell it, too.
        self.is_known = True
        return True

    def notify(self, coming: int = 0, *, may_run: bool = False) -> None:
        if coming and not self.must_tell(coming):
            return
        # First: the owner looks after this. If it was set later, a thread's item that
        # came after that look would seem to be known, and nobody would tell of it.
        self.is_known = bool(self.items)
        try:
            self._tell(coming, may_run=may_run)
        except BaseException:
            self.is_known = False
            self.open_slots = 0
            raise

    def wait_in_line(self, waiter: Waiter, chunk: Sequence[T] = ()) -> None:
        with self.guard:
            self.open_slots = 0
            super().wait_in_line(waiter, chunk)

    def take(self, most: int | None) -> list[T]:
        self.is_known = False
        self.open_slots = 0
        taken = super().take(most)
        # Who takes looks again before it sleeps, so it knows of what is left.
        self.is_known = bool(self.items)
        return taken

    def _tell(self, coming: int, *, may_run: bool) -> None:
        super().notify(coming, may_run=may_run)


def take_back(items: Any, count: int) -> None:  # noqa: ANN401 - a list or deque
    """Leave so many: memory ended, and a deque has got the first ones of a chunk."""
    while len(items) > count:
        del items[-1]
