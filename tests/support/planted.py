"""Bugs to plant into the library, to see that the tests would find them.

Each is a context manager that breaks one thing, as somebody might break it, and puts
it right again. One that has nothing to break any more, because the engine has changed,
says so (`NothingPlanted`). `tests/properties/test_planted_bugs.py` shows who finds
which.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from batchqueue_async._engine.draining.batch import Batch, Grouping
from batchqueue_async._engine.draining.drain_task import DrainTask
from batchqueue_async._engine.draining.failed_batch import RetryQueue
from batchqueue_async._engine.draining.linger_and_nap import Nap
from batchqueue_async._engine.draining.sized_batches import SizedGrouping
from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerLock
from batchqueue_async._engine.intake import Intake
from batchqueue_async._engine.lifecycle.handoffs import Handoffs
from batchqueue_async._engine.lifecycle.tasks_and_shutdown import Shutdown
from batchqueue_async._engine.partitions.accounts import Accounts
from batchqueue_async._engine.partitions.ownership import Ownership
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.routing import TypePlacement
from batchqueue_async._engine.partitions.sized_partition import SizedPartition
from batchqueue_async._engine.partitions.wait_for_room import ServedWaiter, Tally
from batchqueue_async._engine.partitions.waiting_line import (
    LoopWaiter,
    Waiter,
    WaitingLine,
)

Method = Callable[..., Any]
Bug = Callable[[], AbstractContextManager[None]]

PLANTED: dict[str, Bug] = {}
"""Every bug, by its name."""


class NothingPlanted(Exception):
    """The method is gone, or nobody calls it: the bug must be planted elsewhere.

    No `AssertionError`, which would look as if the bug had been found.
    """


@contextmanager
def _swapped(owner: type, name: str, method: Method) -> Iterator[None]:
    original = vars(owner)[name]
    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _plant(name: str, owner: type, method: str) -> Callable[[Method], Method]:
    """Register a bug: a function that gets the original method, and its arguments."""

    def register(broken: Method) -> Method:
        @contextmanager
        def planted() -> Iterator[None]:
            where, calls = f"{owner.__qualname__}.{method}", 0
            original = vars(owner).get(method)
            if original is None:
                message = f"{where} is gone"
                raise NothingPlanted(message)

            def counted(*args: Any, **named: Any) -> Any:  # noqa: ANN401
                nonlocal calls
                calls += 1
                return broken(original, *args, **named)

            with _swapped(owner, method, counted):
                yield
            if not calls:
                message = f"nobody calls {where}"
                raise NothingPlanted(message)

        PLANTED[name] = planted
        return broken

    return register


def _nothing(*_: Any, **__: Any) -> None:  # noqa: ANN401  # any method
    pass


# B1, C2, F1: the line of waiting producers.

_plant("lost wake-up", LoopWaiter, "wake")(_nothing)
_plant("cancelled producer's item stays", ServedWaiter, "on_cancelled")(_nothing)
_plant("closing wakes nobody", WaitingLine, "wake_all")(_nothing)


@_plant("next one is not woken", WaitingLine, "filled")
def _fill_in_silence(
    original: Method, self: WaitingLine, waiter: Waiter, count: int
) -> None:
    with _swapped(LoopWaiter, "wake", _nothing):
        original(self, waiter, count)


@_plant("new head is not woken", WaitingLine, "leave")
def _leave_in_silence(original: Method, self: WaitingLine, waiter: Waiter) -> None:
    with _swapped(LoopWaiter, "wake", _nothing):
        original(self, waiter)


@_plant("LIFO instead of FIFO", WaitingLine, "join")
def _join_at_the_front(original: Method, self: WaitingLine, waiter: Waiter) -> None:
    original(self, waiter)
    first, last = self.head, waiter.ahead
    if last is not None and first is not waiter:
        last.behind, waiter.behind = None, first
        self.head = self.unserved = waiter


@_plant("cancelled waiter keeps its slot", WaitingLine, "leave")
def _leave_with_the_slot(original: Method, self: WaitingLine, waiter: Waiter) -> None:
    slots = waiter.granted
    original(self, waiter)
    self.reserved += slots


@_plant("cancelled waiter tells nobody", Partition, "leave_line")
def _leaveunserved(original: Method, self: Partition[Any], waiter: Waiter) -> None:
    with _swapped(Partition, "serve_line", Partition._set_limits):
        original(self, waiter)


@_plant("what was taken back serves nobody", Partition, "leave_line")
def _take_back_only(original: Method, self: Partition[Any], waiter: Waiter) -> None:
    if waiter.line is not None:
        original(self, waiter)


@_plant("taken while it may be taken back", Partition, "_fill_from_line")
def _serve_for_good(original: Method, self: Partition[Any]) -> None:
    original(self)
    self.pausing = None


@_plant("late comers overtake", Intake, "_try_offer")
def _offer_past_the_line(
    _: Method,
    __: Intake,
    partition: Partition[Any],
    item: object,
    placed: Tally | None = None,
) -> bool:
    partition.notify(1)
    accepted = 0 if partition.is_closed else partition._accept((item,), [])
    partition._set_limits()
    if placed is not None:
        placed.count += accepted
    return accepted == 1


# A1, B1, C1, F5: what a partition holds, and what is taken from it.


@_plant("over-full partition", Partition, "_accept")
def _accept_all(
    original: Method, self: Partition[Any], chunk: Sequence[Any], displaced: list[Any]
) -> int:
    self._maxsize += len(chunk)
    try:
        return int(original(self, chunk, displaced))
    finally:
        self._maxsize -= len(chunk)


@_plant("take above max", Partition, "take")
def _take_all(original: Method, self: Partition[Any], _: int | None) -> list[Any]:
    taken: list[Any] = original(self, None)
    return taken


@_plant("newest first", Partition, "_remove")
def _remove_newest_first(
    original: Method, self: Partition[Any], most: int | None
) -> list[Any]:
    self.items.reverse()
    taken: list[Any] = original(self, most)
    self.items.reverse()
    return taken


@_plant("leftovers are forgotten", Partition, "take_rest")
def _withdraw_nothing(original: Method, self: Partition[Any], _: list[Any]) -> None:
    original(self, [])


@_plant("flush does not wait", Accounts, "watch")
def _never_watch(*_: Any) -> bool:  # noqa: ANN401  # whatever it gets
    return False


_plant("handled part is not booked", Accounts, "settle_some")(_nothing)


# C5: sizes.

_plant("handlers keep the room of what they have handled", SizedPartition, "let_go")(
    _nothing
)


@_plant("batches are cut by their length alone", SizedGrouping, "batches")
def _cut_by_length(
    _: Method, self: SizedGrouping[Any], most: int | None
) -> list[Batch[Any]]:
    return Grouping.batches(self, most)


# A1, D2, E3, E4: owners and handoffs.


@_plant("double owner", Ownership, "grant")
def _grant_beside(
    original: Method, self: Ownership, partition: int, drain_task: int
) -> None:
    original(self, partition, drain_task)
    self._derived = tuple(
        tuple({*self.owned_by(each), partition}) for each in range(self.drain_tasks)
    )


_plant("owner none", Ownership, "restore")(_nothing)


@_plant("growth forgets owners", Ownership, "grow")
def _grow_from_scratch(original: Method, self: Ownership, _first: int) -> None:
    self._owners = []
    original(self, 0)


@_plant("handoff without a fence", DrainTask, "cycle_end")
def _cycle_end_at_once(original: Method, self: DrainTask[Any]) -> Any:  # noqa: ANN401
    was_in_cycle, self.is_in_cycle = self.is_in_cycle, False
    try:
        return original(self)
    finally:
        self.is_in_cycle = was_in_cycle


@_plant("item lost in handoff", Handoffs, "move")
async def _hand_over_and_lose(
    original: Method, self: Handoffs, moves: list[Any], timeout: float
) -> None:
    await original(self, moves, timeout)
    for move in moves:
        if move.partition.items:
            move.partition.items.pop()


@_plant("new owner is not told", Handoffs, "_finish")
def _finish_in_silence(original: Method, self: Handoffs, move: Any) -> None:  # noqa: ANN401
    with _swapped(Partition, "notify", _nothing), _swapped(Nap, "wake", _nothing):
        original(self, move)


# B1, B2, B3, D2: drain tasks, handlers and types.

_plant("arrivals end no nap", Nap, "notify")(_nothing)


_plant("deferred batch does not pause", Batch, "pause_partitions")(_nothing)


@_plant("deferred batch is overtaken", RetryQueue, "note_due_if_blocked")
def _wait_for_nobody(*_: Any) -> bool:  # noqa: ANN401  # whatever it gets
    return False


@_plant("on_idle beside consume", HandlerLock, "try_acquire")
def _enter_anyhow(original: Method, self: HandlerLock, slot: Any) -> bool:  # noqa: ANN401
    if not original(self, slot):
        self._go_in(slot)
    return True


@_plant("growth moves types", TypePlacement, "_seen")
def _see_growth_and_move(original: Method, self: TypePlacement) -> Any:  # noqa: ANN401
    known = self.lightest
    if known is not None and len(known.types) < len(self.partitions):
        self.routes.clear()
    return original(self)


# F3: the end.


@_plant("a deadline outlives its shutdown", Shutdown, "end_within")
def _never_call_it_off(_: Method, self: Shutdown, timeout: float | None) -> None:
    if timeout is not None:
        self._loop.call_later(timeout, self.end_now)
