"""What callers wait for, and whether what they are told in the end is true."""

import asyncio
from dataclasses import dataclass
from typing import Any

from batchqueue_async import DeliveryError
from tests.properties.gated_handler import Item
from tests.properties.ledger import Ledger


@dataclass(eq=False)
class Producing:
    """A `produce` or `produce_many`, and what it shall bring in."""

    task: asyncio.Task[Any]
    items: list[Item]


class Calls:
    """The calls of one queue that are under way."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.producing: list[Producing] = []
        self.flushes: list[tuple[asyncio.Task[None], list[Item]]] = []
        """Each with what had been accepted before."""
        self.closings: list[asyncio.Task[list[Item]]] = []
        """Every `shutdown`, also those that have ended."""
        self._closed: set[asyncio.Task[list[Item]]] = set()
        self._cancelled: set[asyncio.Task[Any]] = set()

    @property
    def is_closing(self) -> bool:
        return bool(self.closings)

    @property
    def under_way(self) -> list[asyncio.Task[Any]]:
        return [
            *(each.task for each in self.producing),
            *(task for task, _ in self.flushes),
            *(task for task in self.closings if not task.done()),
        ]

    @property
    def stuck_items(self) -> list[list[Item]]:
        """What producers wait with."""
        return [each.items for each in self.producing]

    def cancel(self, task: asyncio.Task[Any]) -> None:
        self._cancelled.add(task)
        task.cancel()

    def see_ends(self) -> None:
        """Check the answers of those that have ended since the last look."""
        for each in [each for each in self.producing if each.task.done()]:
            self.producing.remove(each)
            self._check_answer(each)
        for task, before in [each for each in self.flushes if each[0].done()]:
            self.flushes.remove((task, before))
            self._check_flushed(task, before)
        for closing in self.closings:
            if closing.done() and closing not in self._closed:
                self._closed.add(closing)
                if not self._was_cancelled(closing):
                    self._ledger.was_returned(closing.result())

    def _check_answer(self, producing: Producing) -> None:
        task, items = producing.task, producing.items
        placed = [item for item in items if item.number in self._ledger.place]
        if self._was_cancelled(task):
            assert len(items) > 1 or not placed, "C2: it raised, and has accepted"
            return
        answer = int(task.result())
        assert answer == len(placed), f"A1: it says {answer}, accepted are {placed}"
        if self._ledger.waits and not self.is_closing:
            assert answer == len(items), f"refused without a reason: {items}"

    def _check_flushed(self, task: asyncio.Task[None], before: list[Item]) -> None:
        if self._was_cancelled(task):
            return
        error = task.exception()
        if isinstance(error, TimeoutError):
            return
        assert error is None or isinstance(error, DeliveryError), f"flush: {error!r}"
        if self.is_closing:
            return  # a deadline may have returned them; `shutdown` says which
        open_numbers = self._ledger.open_numbers()
        late = [item for item in before if item.number in open_numbers]
        assert not late, f"F5: flushed, but {late} are not settled"

    def _was_cancelled(self, task: asyncio.Task[Any]) -> bool:
        if not task.cancelled():
            return False
        assert task in self._cancelled, f"nobody cancelled {task}"
        return True
