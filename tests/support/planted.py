"""Bugs to plant into the library, to see that the tests would find them.

Each is a context manager that breaks one thing, as somebody might break it, and puts
it right again. `tests/properties/test_planted_bugs.py` shows who finds which.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from batchqueue_async._engine.accounts import Accounts
from batchqueue_async._engine.batch import Batch
from batchqueue_async._engine.drain_task import DrainTask
from batchqueue_async._engine.gate import Gate
from batchqueue_async._engine.ownership import Ownership
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.placement import TypePlacement
from batchqueue_async._engine.rebalancer import Rebalancer
from batchqueue_async._engine.waiting_line import Waiter, WaitingLine

Bug = Callable[[], AbstractContextManager[None]]

PLANTED: dict[str, Bug] = {}
"""Every bug, by its name."""


def _plant(name: str, owner: type, method: str) -> Callable[[Any], Any]:
    """Register a bug: the decorated function in place of `owner.method`."""
    original = getattr(owner, method)

    def register(broken: Any) -> Any:  # noqa: ANN401  # any method
        @contextmanager
        def planted() -> Iterator[None]:
            setattr(owner, method, broken)
            try:
                yield
            finally:
                setattr(owner, method, original)

        PLANTED[name] = planted
        return broken

    return register


def _nothing(*_: Any, **__: Any) -> None:  # noqa: ANN401  # any method
    pass


# The line of waiting producers.

_plant("lost wake-up", WaitingLine, "_wake_head")(_nothing)
_plant("closing wakes nobody", WaitingLine, "wake_all")(_nothing)


@_plant("LIFO instead of FIFO", WaitingLine, "join")
def _join_at_the_front(self: WaitingLine, waiter: Waiter) -> None:
    self._waiters.appendleft(waiter)
    self.wanted += waiter.wants


@_plant("cancelled waiter keeps its slot", WaitingLine, "leave")
def _leave_with_the_slot(self: WaitingLine, waiter: Waiter) -> None:
    if waiter.wants:
        self._waiters.remove(waiter)
        self.wanted -= waiter.wants
        self._wake_head()


@_plant("cancelled waiter tells nobody", Partition, "leave_line")
def _leave_in_silence(self: Partition[Any], waiter: Waiter) -> None:
    self.line.leave(waiter)
    self._set_limits()


@_plant("late comers overtake", Partition, "offer")
def _offer_past_the_line(self: Partition[Any], chunk: Sequence[Any]) -> int:
    return 0 if self.is_closed else self._accept(chunk)


# What a partition holds, and what is taken from it.


@_plant("take above max", Partition, "take")
def _take_everything(self: Partition[Any], _most: int | None) -> list[Any]:
    taken = self._remove(None)
    self.accounts.take(len(taken))
    self._serve_line()
    return taken


@_plant("newest first", Partition, "_remove")
def _remove_newest_first(self: Partition[Any], most: int | None) -> list[Any]:
    items = list(self.items)
    split = 0 if most is None else max(0, len(items) - most)
    self.items = items[:split]
    return items[split:]


@_plant("leftovers are forgotten", Partition, "withdraw")
def _withdraw_nothing(self: Partition[Any]) -> list[Any]:
    self.accounts.remove_waiting("returned", len(self._remove(None)))
    return []


@_plant("flush does not wait", Accounts, "watch")
def _never_watch(_self: Accounts, _position: int, _watcher: object) -> bool:
    return False


# Owners and handoffs.


@_plant("double owner", Ownership, "grant")
def _grant_beside(self: Ownership, partition: int, drain_task: int) -> None:
    derived = self._derived
    self._revoked.discard(partition)
    self._owners[partition] = drain_task
    self._changed()
    self._derived = derived


_plant("owner none", Ownership, "restore")(_nothing)


@_plant("growth forgets owners", Ownership, "grow")
def _grow_from_scratch(self: Ownership, partitions: int) -> None:
    self._owners = [index % self.drain_tasks for index in range(partitions)]
    self._changed()


@_plant("handoff without a fence", DrainTask, "cycle_end")
def _cycle_end_at_once(self: DrainTask[Any]) -> asyncio.Future[None]:
    end: asyncio.Future[None] = self._loop.create_future()
    end.set_result(None)
    return end


_hand_over = Rebalancer._hand_over


@_plant("item lost in handoff", Rebalancer, "_hand_over")
async def _hand_over_and_lose(self: Rebalancer[Any], moves: list[Any]) -> int:
    moved = await _hand_over(self, moves)
    for move in moves:
        if move.partition.items:
            move.partition.items.pop()
    return moved


@_plant("new owner is not told", Rebalancer, "_hand_over")
async def _hand_over_in_silence(self: Rebalancer[Any], moves: list[Any]) -> int:
    notice, self._notice = self._notice, _nothing
    try:
        return await _hand_over(self, moves)
    finally:
        self._notice = notice


# Drain tasks and handlers.

_plant("arrivals end no nap", DrainTask, "notice")(_nothing)
_plant("parked batch is overtaken", Batch, "hold")(_nothing)


@_plant("on_idle beside consume", Gate, "try_enter")
def _enter_anyhow(self: Gate, slot: Any) -> bool:  # noqa: ANN401
    self._inside[slot] += 1
    return True


_see_growth = TypePlacement._see_growth


@_plant("growth moves types", TypePlacement, "_see_growth")
def _see_growth_and_move(self: TypePlacement[Any]) -> None:
    if len(self._weights) < len(self._partitions):
        self.routes.clear()
    _see_growth(self)
