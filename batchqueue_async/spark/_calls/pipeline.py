"""The calls of one task: rows in, rows out, and never more than may be in flight.

Runs on the loop alone. The task's thread calls `advance` again and again, to bring rows
and to get others; calls begin and end in between, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from batchqueue_async import BatchQueue, BatchQueueError, PartialFailure
from batchqueue_async._wording import add_note, text_of

from ..executor_stats import CallCounts
from .call import Call, CallLine, WaitingRows
from .declared import OutputColumn
from .options import CallOptions
from .results import ResultMaker

if TYPE_CHECKING:
    import pyarrow as pa

# Finished rows leave together, so that Spark does not get thousands of tiny record
# batches; but no row waits for others longer than `_LONGEST` seconds.
_ENOUGH_ROWS = 2_000
_LONGEST = 0.1


Ask: TypeAlias = Callable[[list[Any]], Awaitable[object]]
"""Makes an attempt with these items; returns what the call returned."""


class Step(NamedTuple):
    """Rows to be passed on; whether more input is wanted; whether that was all."""

    rows: list[pa.RecordBatch]
    wants_more: bool
    is_done: bool


class CallPipeline:
    """One task's calls.

    Invariant: a slot is free, or it has a call that is not settled. Each call that has
    begun is in the line until its rows leave.
    """

    def __init__(
        self,
        options: CallOptions,
        output: Sequence[OutputColumn] | None,
        slots: Sequence[CallSlot],
        queue: BatchQueue[int],
    ) -> None:
        self._options = options
        self._output = output
        self._queue = queue
        self._waiting = WaitingRows(options, keeps_input=output is not None)
        self._is_ended = False
        self._free = [*slots]
        self._line = CallLine(options)
        self._finished: list[pa.RecordBatch] = []
        self._finished_rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = False
        self._error: BaseException | None = None
        self._attempts = self._given = self._items = self._failed = 0
        # The first one wakes the task below, the second one `advance`.
        self._news = asyncio.Event()
        self._due = asyncio.Event()
        self._beginning = asyncio.create_task(self._begin_calls(), name="map_async")

    @property
    def counts(self) -> CallCounts:
        retried = self._given - self._items
        return CallCounts(self._attempts, self._items, retried, self._failed)

    async def advance(
        self, batch: pa.RecordBatch | None = None, *, is_last: bool = False
    ) -> Step:
        """Take rows, if there are any, and wait until there is something to be done.

        Raises what a call raised, with `on_error="raise"`, or what `to_items` raised.
        """
        if batch is not None:
            self._waiting.add(batch, asyncio.get_running_loop().time())
        self._is_ended = self._is_ended or is_last
        self._news.set()
        while not self._is_due():
            self._due.clear()
            await self._due.wait()
        if self._error is not None:
            raise self._error
        return self._step()

    async def abandon(self) -> None:
        """Begin no more calls; the queue's owner ends those in flight."""
        self._beginning.cancel()

    # What the slots call.

    def attempted(self, items: int) -> None:
        self._attempts += 1
        self._given += items

    def gave_up(self, items: int, error: BaseException) -> None:
        self._failed += items
        if self._options.on_error == "raise":
            self._fail(error, f"map_async gave up a call of {items} items")

    def settled(self, slot: CallSlot, call: Call) -> None:
        self._free.append(slot)
        try:
            for each in self._line.leave(call):
                self._finish(each)
        except Exception as error:  # noqa: BLE001 - it is not the attempt that failed
            self._fail(error)
        self._tell()

    async def go_on(self) -> None:
        """Begin a call in the place of one that is settled, in the same turn."""
        try:
            if self._is_ready():
                await self._begin_call()
        except BaseException as error:  # it is not the attempt that failed
            self._fail(error)
            # The queue may be ending its drain task.
            if isinstance(error, asyncio.CancelledError):
                raise
        if self._free or not self._waiting:
            self.look()

    def look(self) -> None:
        """Have the task look whether another call may begin, or none will any more."""
        self._news.set()

    def _finish(self, call: Call) -> None:
        rows = call.rows()
        if rows.num_rows:
            if not self._finished:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(_LONGEST, self._be_late)
            self._finished.append(rows)
            self._finished_rows += rows.num_rows

    # What begins calls.

    async def _begin_calls(self) -> None:
        try:
            while await self._may_begin():
                await self._begin_call()
                # So that the call starts before the next one's items are made.
                await asyncio.sleep(0)
        # Rows are taken out before `to_items` gets them: whatever it raises, also a
        # SystemExit or CancelledError, they must not pass for settled.
        except BaseException as error:  # noqa: BLE001 - `advance` raises it
            self._fail(error)
        self._tell()

    async def _begin_call(self) -> None:
        items, given = self._waiting.cut()
        self._tell()
        if not items:
            return
        call = Call(items, given, self._output)
        # The slot that was freed last: its drain task is still awake.
        slot = self._free.pop()
        self._items += len(call)
        self._line.join(call)
        positions = slot.take(call, self)
        if await self._queue.produce_many(positions) < len(positions):
            msg = f"queue {self._queue.name!r} accepts no more: it is closed"
            raise BatchQueueError(msg)

    async def _may_begin(self) -> bool:
        """Wait until a call may begin; False if none will."""
        while self._error is None and (self._waiting or not self._is_ended):
            if self._is_ready():
                return True
            timer = None
            if self._has_place:
                loop = asyncio.get_running_loop()
                timer = loop.call_at(self._lingers_until, self._news.set)
            self._news.clear()
            await self._news.wait()
            if timer is not None:
                timer.cancel()
        return False

    def _is_ready(self) -> bool:
        return (
            self._has_place
            and self._error is None
            and (
                self._waiting.is_enough
                or self._is_ended
                or asyncio.get_running_loop().time() >= self._lingers_until
            )
        )

    @property
    def _has_place(self) -> bool:
        """Whether a call may begin with what waits, once that is enough."""
        return bool(
            self._free
            and self._waiting
            and self._line.has_place(self._waiting.calls_of_a_batch)
        )

    @property
    def _lingers_until(self) -> float:
        return self._waiting.oldest + self._options.linger

    # What `advance` waits for.

    def _is_due(self) -> bool:
        return (
            self._is_late
            or self._error is not None
            or self._finished_rows >= _ENOUGH_ROWS
            or self._wants_more
            or self._has_ended
        )

    @property
    def _wants_more(self) -> bool:
        if self._is_ended or not self._waiting.wants_more:
            return False
        # Settled calls that wait for an earlier one use the memory meanwhile.
        return not (self._line.is_buffering and self._waiting.is_enough)

    @property
    def _has_ended(self) -> bool:
        return self._is_ended and not self._waiting and not self._line

    def _step(self) -> Step:
        rows, self._finished, self._finished_rows = self._finished, [], 0
        self._is_late = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return Step(rows, self._wants_more, self._has_ended)

    def _tell(self) -> None:
        if self._is_due():
            self._due.set()

    def _be_late(self) -> None:
        self._is_late = True
        self._tell()

    def _fail(self, error: BaseException, note: str | None = None) -> None:
        if self._error is None:
            if isinstance(error, asyncio.CancelledError):
                # A CancelledError raised there would cancel whoever waits in `advance`.
                cause, error = error, BatchQueueError("a call was cancelled by itself")
                error.__cause__ = cause
            self._error = error
            if note is not None:
                add_note(error, note)
        self._tell()


class CallSlot:
    """A handler of the queue, for a type of item that no other slot has.

    So each call in flight has a partition of its own, and the queue does for the call
    what it does for a batch: it tries again, pauses, splits and counts. The queue's
    items are the positions of the call's items.
    """

    def __init__(self, name: str, ask: Ask, maker: ResultMaker) -> None:
        self.__qualname__ = name
        self._ask = ask
        self._maker = maker
        self._taken: tuple[Call, CallPipeline] | None = None
        # One name for the types of all slots: the log counts their retries together.
        self.position_type: type[int] = type("item", (int,), {"slot": self})
        self._positions: list[int] = []

    def take(self, call: Call, owner: CallPipeline) -> list[int]:
        """Take over a call; returns the positions to put into the queue."""
        self._taken = call, owner
        # Positions are made once, and used by all calls.
        self._positions += map(
            self.position_type, range(len(self._positions), len(call))
        )
        return self._positions[: len(call)]

    async def consume(self, positions: list[int]) -> None:
        assert self._taken is not None
        call, owner = self._taken
        items = call.items_at(positions)
        owner.attempted(len(items))
        try:
            returned = await self._ask(items)
            call.settle(self._maker.made(positions, items, returned))
        except Exception as error:
            # The queue has the failed items tried again, or gives them up.
            call.is_tried_again = True
            owner.look()
            if isinstance(error, PartialFailure):
                self._keep_others(call, positions, error)
                if call.is_settled:
                    owner.settled(self, call)
            raise
        if call.is_settled:
            owner.settled(self, call)
            await owner.go_on()

    def give_up(self, positions: Sequence[int], error: BaseException) -> None:
        assert self._taken is not None
        call, owner = self._taken
        items = call.items_at(positions)
        owner.gave_up(len(items), error)
        call.settle(self._maker.failed(positions, items, _in_a_column(error)))
        if call.is_settled:
            owner.settled(self, call)
            owner.look()

    def _keep_others(
        self, call: Call, positions: Sequence[int], partial: PartialFailure
    ) -> None:
        items, failed = call.items_at(positions), {*partial.failed}
        good = [at for at in range(len(items)) if at not in failed]
        if not good or not failed.issubset(range(len(items))):
            # All items failed, or a position is invalid: the queue deals with that.
            return
        results = partial.results
        if results is None or len(results) != len(items):
            msg = (
                "a PartialFailure must have results, one for each item of the batch,"
                f" got {'none' if results is None else len(results)} for {len(items)}"
            )
            raise ValueError(msg) from partial
        made = self._maker.made(
            [positions[at] for at in good],
            [items[at] for at in good],
            [results[at] for at in good],
        )
        call.settle(made)


def _in_a_column(error: BaseException) -> str:
    """Return an error's text for a column; the error is a user's, and may have none."""
    text = f"{type(error).__name__}: {text_of(error)}".removesuffix(": ")
    # Arrow takes no lone surrogates.
    return text.encode("utf-8", "backslashreplace").decode()
