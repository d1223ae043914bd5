"""A partition that looks at each item, and tells its owner of few of them."""

from __future__ import annotations

from typing import Any, TypeVar

from batchqueue_async._engine.partitions.partition import Partition

T = TypeVar("T")


class ToldOncePartition(Partition[T]):
    """Its owner is told of the first item after a take, and of what makes a batch due.

    To be told of each would set its timer anew, and from a thread wake the loop.
    """

    __slots__ = ("is_known",)

    def __init__(self, *args: Any) -> None:  # noqa: ANN401 - the base's
        # Whether the owner was told since the last take that something waits.
        self.is_known = False
        super().__init__(*args)

    def must_tell(self, coming: int = 0) -> bool:
        return not (self.is_known and self.items) or self.is_due(coming)

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
            raise

    def take(self, most: int | None) -> list[T]:
        self.is_known = False
        return super().take(most)

    def _tell(self, coming: int, *, may_run: bool) -> None:
        super().notify(coming, may_run=may_run)
