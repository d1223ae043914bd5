"""The least that keeps the promises of waiting for room, by hand."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from benchmarks.contender import Handlers

_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A producer in the line; `is_unaware` if its item is placed and it hasn't run."""

    item: Any
    placed: asyncio.Future[None]
    is_unaware: bool = False


class PromisingFloor:
    """A list that its drain task swaps, for one loop, which nobody overtakes in.

    As the library: a bound; producers that wait are served in order of arrival, by who
    makes room (B1); one that is cancelled leaves nothing, though its item was placed
    (C2), so nothing is taken before all of those have run; a batch fails alone (C4),
    and is copied for its handler; what became of items is counted (A1).

    And nothing else: one partition, no close, no threads, no naps, no slow calls that
    are told of, no refusal of a handler that waits for itself, no signal handlers that
    raise in the middle.
    """

    def __init__(self, bound: int, handlers: Handlers) -> None:
        self._bound = bound
        self._handlers = handlers
        self._items: list[Any] = []
        self._line: deque[_Waiting] = deque()
        self._unaware: list[_Waiting] = []
        self._work = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.handled = self.failed = 0

    async def put(self, item: object) -> None:
        """Append an item, after waiting for room in order of arrival."""
        if self._line or len(self._items) >= self._bound:
            await self._wait_for_room(item)
            return
        self._items.append(item)
        if len(self._items) == 1:
            self._work.set()

    async def _wait_for_room(self, item: object) -> None:
        waiting = _Waiting(item, self._loop.create_future())
        self._line.append(waiting)
        try:
            await waiting.placed
        except BaseException:
            if waiting.is_unaware:
                self._withdraw(waiting)
            else:
                self._line.remove(waiting)
            raise
        waiting.is_unaware = False
        if waiting is self._unaware[-1]:
            self._work.set()

    def _withdraw(self, waiting: _Waiting) -> None:
        # Its position: of those that are placed, the unaware ones are last, in order.
        waiting.is_unaware = False
        first = len(self._items) - len(self._unaware)
        place = self._unaware.index(waiting)
        del self._items[first + place], self._unaware[place]
        self._work.set()

    async def drain(self) -> None:
        """Hand batches over until cancelled."""
        while True:
            while not self._items or any(self._those_unaware()):
                self._work.clear()
                await self._work.wait()
            batch, self._items = self._items, []
            self._serve_line()
            for item_type, own in self._by_type(batch):
                try:
                    await self._handlers[item_type](own.copy())
                except Exception:
                    _logger.exception("%d items failed", len(own))
                    self.failed += len(own)
                else:
                    self.handled += len(own)
            await asyncio.sleep(0)

    def _those_unaware(self) -> Iterator[bool]:
        return (each.is_unaware for each in self._unaware)

    def _serve_line(self) -> None:
        served = self._unaware = [*islice(self._line, self._bound)]
        for waiting in served:
            self._line.popleft()
            waiting.is_unaware = True
            self._items.append(waiting.item)
            waiting.placed.set_result(None)

    @staticmethod
    def _by_type(batch: list[Any]) -> Iterator[tuple[type, list[Any]]]:
        first = type(batch[0])
        if [*map(type, batch)].count(first) == len(batch):
            yield first, batch
            return
        by_type: dict[type, list[Any]] = {}
        for item in batch:
            by_type.setdefault(type(item), []).append(item)
        yield from by_type.items()
