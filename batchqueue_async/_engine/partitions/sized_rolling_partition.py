"""A partition whose items have sizes, and that displaces its oldest ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

from batchqueue_async._engine.partitions.byte_budget import Measured
from batchqueue_async._engine.partitions.rolling_partition import RollingPartition
from batchqueue_async._engine.partitions.sized_partition import SizedPartition

T = TypeVar("T")


class SizedRollingPartition(SizedPartition[T], RollingPartition[T]):
    """One that displaces its own oldest items, where slots or room are short.

    Items of other partitions and of handlers stay. So an item is refused if displacing
    all items of its partition would not make enough room.
    """

    def _accept_fitting(self, chunk: Sequence[T], displaced: list[T]) -> int:
        before, count = self.accounts.dropped, 0
        try:
            for place, size in enumerate(cast("Measured[T]", chunk).sizes):
                if not self.budget.would_hold(size, without=self.waiting_size):
                    continue
                self.ages.sample(self)
                while len(self.items) >= self._maxsize or self.budget.refuses(size):
                    displaced.append(self.items[0])
                    self._forget(1)
                    self._drop(1, 0)
                self._append(chunk[place : place + 1])
                count += 1
        finally:
            self._on_drop(displaced[: self.accounts.dropped - before])
        return count

    def _drop(self, waiting: int, passed: int) -> None:
        items, sizes, accounts, budget = (
            self.items,
            self.sizes,
            self.accounts,
            self.budget,
        )
        for _ in range(waiting):
            size = sizes[0]
            waits, waits_in_all = self.waiting_size - size, budget.waiting - size
            # As in the base: no call from here on, after which a signal handler might
            # raise.
            del items[0], sizes[0]
            self.waiting_size, budget.waiting = waits, waits_in_all
            accounts.taken_out += 1
            accounts.dropped += 1
