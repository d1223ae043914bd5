"""Strikes a queue at one of its points, lets its loop run again, and accounts for all.

What strikes is an exception of a signal handler's: Ctrl-C where no runner turns it into
a cancellation, a SIGALRM handler that raises, a test's timeout.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueStats,
    DeliveryError,
    PartialFailure,
    PartitionPolicy,
    Retry,
    WhenFull,
    fair_by,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.interruptions import Interruption
from tests.support.from_turn import InterruptionFromTurn
from tests.support.oracle import check_settled
from tests.support.striking import Struck

TYPES = (int, float, complex)
"""Of the items, where there are several: each has a handler of its own."""
COUNT = 12
LIMIT = 1_000.0


class Failed(BaseException):
    """As from pytest-timeout: it ends the task that it strikes, and not the loop."""


STRIKES: tuple[type[BaseException], ...] = (KeyboardInterrupt, Struck, Failed)


STRIKES_AND_ENDS: tuple[type[BaseException], ...]
STRIKES_AND_ENDS = (*STRIKES, asyncio.CancelledError, RuntimeError)


@dataclass(frozen=True)
class Kind:
    """A kind of queue, and what is produced into it."""

    name: str
    config: BatchQueueConfig[Any]
    items: Sequence[Any] = tuple(range(COUNT))
    has_types: bool = False


def _several_types() -> tuple[Any, ...]:
    return tuple(TYPES[number % 3](number) for number in range(COUNT))


_PLAIN: BatchQueueConfig[Any] = BatchQueueConfig(max_batch=5)
_TWO = replace(_PLAIN, partitions=PartitionPolicy.fixed(2))

KINDS = (
    Kind("plain", _PLAIN),
    Kind("whole", BatchQueueConfig()),
    Kind("audited", replace(_PLAIN, audit=True)),
    Kind("one type", replace(_PLAIN, audit=True), has_types=True),
    Kind("types", replace(_PLAIN, audit=True), _several_types(), has_types=True),
    Kind(
        "two partitions", replace(_TWO, audit=True, selector=lambda item, _: item % 2)
    ),
    Kind(
        "types in partitions",
        replace(_TWO, audit=True),
        _several_types(),
        has_types=True,
    ),
    Kind(
        "rolling",
        replace(_PLAIN, audit=True, buffer_size=9, when_full=WhenFull.DROP_OLDEST),
    ),
    Kind("fair", replace(_PLAIN, audit=True, selector=fair_by(lambda item: item % 3))),
    Kind("fair, quick", replace(_PLAIN, selector=fair_by(lambda item: item % 3))),
    Kind("sized", replace(_PLAIN, audit=True, size_of=float, max_batch_bytes=20.0)),
    Kind("sized, quick", replace(_PLAIN, size_of=float, max_batch_bytes=20.0)),
    Kind(
        "sized types",
        replace(
            _PLAIN,
            audit=True,
            size_of=lambda _: 1.0,
            buffer_bytes=40.0,
            max_batch_bytes=4.0,
        ),
        _several_types(),
        has_types=True,
    ),
    Kind(
        "sized rolling",
        BatchQueueConfig(
            audit=True,
            buffer_size=9,
            size_of=lambda item: item.real % 12 + 0.5,
            buffer_bytes=99.5,
            when_full=WhenFull.DROP_OLDEST,
        ),
    ),
    Kind("lingering", replace(_TWO, audit=True, linger=0.1, threads=True)),
)


@dataclass
class Ledger:
    """What became of the items, as a user sees it."""

    entered: Counter[Any] = field(default_factory=Counter)
    failed: Counter[Any] = field(default_factory=Counter)
    calls: int = 0
    was_entered_twice: bool = False

    def on_error(self, batch: list[Any], _: BaseException) -> None:
        self.failed.update(batch)


Behaviour = Callable[[Ledger, list[Any]], Any]


def handles(ledger: Ledger, batch: list[Any]) -> None:
    """Handle all at once."""


async def waits(ledger: Ledger, batch: list[Any]) -> None:
    """Handle all, after a while."""
    await asyncio.sleep(0.5)


def fails(ledger: Ledger, batch: list[Any]) -> None:
    """Handle nothing."""
    raise ValueError


def fails_once(ledger: Ledger, batch: list[Any]) -> None:
    """Handle a batch when it comes again."""
    if ledger.calls == 1:
        raise ValueError


async def fails_in_part(ledger: Ledger, batch: list[Any]) -> None:
    """Handle all but some of the first batch."""
    if ledger.calls == 1:
        raise PartialFailure(range(1, len(batch), 2))


def fails_for_three(ledger: Ledger, batch: list[Any]) -> None:
    """Handle what comes without the item 3."""
    if 3 in batch:
        raise ValueError


async def hangs(ledger: Ledger, batch: list[Any]) -> None:
    """Handle nothing until the deadline."""
    await asyncio.sleep(10 * LIMIT)


_ONCE = Retry()


@dataclass(frozen=True)
class Outcome:
    """What handlers do, and how often they may get an item."""

    behaviour: Behaviour
    retry: Retry = _ONCE
    deadline: float = LIMIT

    @property
    def name(self) -> str:
        attempts = f" {self.retry.attempts}" if self.retry.attempts > 1 else ""
        return f"{self.behaviour.__name__}{attempts}"


_TWICE = Retry(attempts=2, wait_initial=0.1)

OUTCOMES = (
    Outcome(handles),
    Outcome(waits),
    Outcome(fails),
    Outcome(fails_in_part),
    Outcome(fails_in_part, _TWICE),
    Outcome(fails_once, _TWICE),
    Outcome(fails_for_three, Retry(split=True)),
    Outcome(hangs, deadline=1.0),
)


def is_in_callback() -> bool:
    """Whether a callback of the loop runs that is no task's step."""
    return asyncio.current_task() is None


def is_in_drain_task() -> bool:
    """Whether a drain task runs."""
    task = asyncio.current_task()
    return task is not None and "drain task" in task.get_name()


def is_not_producing() -> bool:
    """Whether anything runs but what puts items in, which other tests strike."""
    task = asyncio.current_task()
    return task is None or task.get_name() != PRODUCER


PRODUCER, USER = "the producer's", "the user's"


def is_out_of_reach(point: Interruption, out_of_reach: tuple[str, ...]) -> bool:
    where = (point.where or "").partition(":")[0]
    return where in out_of_reach or point.root in out_of_reach


class StruckQueue:
    """One queue in virtual time, struck once."""

    def __init__(
        self,
        kind: Kind,
        outcome: Outcome,
        strike: type[BaseException] = KeyboardInterrupt,
    ) -> None:
        self.kind = kind
        self.outcome = outcome
        self.ledger = Ledger()
        self.loop = VirtualTimeLoop()
        self.loop.set_exception_handler(lambda *_: None)
        self.accepted: list[Any] = []
        self.left: list[Any] = []
        self.has_shut_down = False
        self._strike = strike
        config = replace(
            kind.config, on_error=self.ledger.on_error, retry=outcome.retry
        )
        if not kind.has_types:
            config = replace(config, consumer=self.handler())
        self.queue = BatchQueue[Any]("q", config)
        if kind.has_types:
            for each in TYPES:
                self.queue.add_handler(each, self.handler())

    def handler(self) -> Callable[[list[Any]], Any]:
        ledger, behaviour = self.ledger, self.outcome.behaviour
        inside = False

        async def consume(batch: list[Any]) -> None:
            nonlocal inside
            ledger.was_entered_twice |= inside
            inside = True
            try:
                ledger.calls += 1
                ledger.entered.update(batch)
                result = behaviour(ledger, batch)
                if result is not None:
                    await result
            finally:
                inside = False

        return consume

    def run(
        self,
        at: int,
        *,
        runs_in: Callable[[], bool] = is_in_drain_task,
        part: "Part | None" = None,
        out_of_reach: tuple[str, ...] = (),
        points: list[int] | None = None,
    ) -> Interruption:
        """Strike at a point of a part; raises AssertionError if anything is lost.

        Args:
            at: The number of the point.
            runs_in: Whether what begins, or goes on, has points.
            part: What the queue is doing meanwhile.
            out_of_reach: Functions in which nothing is promised, and callbacks of
                the loop: not in what they call either.
            points: What runs of a sweep share: see `InterruptionFromTurn`.
        """
        # What is cut short in a callback goes on with the next arrival, flush or end.
        self.goes_on_by_itself = runs_in is is_in_drain_task

        def strike() -> None:
            raise self._strike

        self.drive(self.queue.start())
        self.drive(asyncio.sleep(1.0))
        known = [] if points is None else points
        point = InterruptionFromTurn(at, strike, runs_in, self.loop, known)
        try:
            with point:
                self.drive(self.put_before(part or fill))
            if not is_out_of_reach(point, out_of_reach):
                self.drive(self.check(), limit=2 * LIMIT)
        except TimeoutError:
            if not is_out_of_reach(point, out_of_reach):
                raise
        except BaseException as error:
            error.add_note(f"struck at point {at}, {point.where}")
            raise
        finally:
            self.loop.close()
        return point

    def drive(self, body: Coroutine[Any, Any, Any], limit: float = LIMIT) -> None:
        """Run the loop until it is done, again after each strike, as notebooks do."""

        async def bounded() -> None:
            async with asyncio.timeout(limit):
                await body

        task = self.loop.create_task(bounded(), name=USER)
        while not task.done():
            try:
                self.loop.run_until_complete(task)
            except STRIKES_AND_ENDS:
                # asyncio's own doing: after a strike in the turn in which the last task
                # ended, the call that stops the loop is still there.
                continue
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, STRIKES):
            raise error

    async def put_before(self, part: "Part") -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(PRODUCER)
        for item in self.kind.items:
            self.queue.produce_nowait(item)
            self.accepted.append(item)
        task.set_name(USER)
        await part(self)

    async def check(self) -> None:
        """Let it go on, end it, and see whether each item ended in one class."""
        await asyncio.sleep(20.0)
        if self.outcome.behaviour is not hangs and not self.has_shut_down:
            await self.check_it_goes_on()
        while (
            self.queue.stats().waiting + self.queue.stats().in_flight or not self.left
        ):
            left = await self.queue.shutdown(self.outcome.deadline)
            self.left += left
            if not left:
                break
        check_settled(self.queue)
        stats = self.queue.stats()
        assert stats.accepted == len(self.accepted)
        self.check_items(stats)

    async def check_it_goes_on(self) -> None:
        """Check that new items are handled, and that a flush ends."""
        for item in self.kind.items:
            self.accepted.append(again := type(item)(100 + item.real))
            assert self.queue.offer(again), "no room"
        await asyncio.sleep(20.0)
        if self.goes_on_by_itself:
            self.check_all_is_settled()
        with contextlib.suppress(DeliveryError):
            await self.queue.flush(timeout=LIMIT / 2)
        self.check_all_is_settled()

    def check_all_is_settled(self) -> None:
        stats = self.queue.stats()
        assert stats.waiting == stats.in_flight == 0, "it stands still"

    def check_items(self, stats: BatchQueueStats) -> None:
        ledger, left = self.ledger, Counter(self.left)
        assert not ledger.was_entered_twice
        assert max([*ledger.failed.values(), *left.values()], default=1) == 1
        assert not left & ledger.failed
        ended_otherwise = len(self.left) + ledger.failed.total() + stats.dropped
        assert stats.handled == len(self.accepted) - ended_otherwise
        assert stats.failed == ledger.failed.total()
        assert stats.returned == len(self.left)
        handled = Counter(self.accepted) - ledger.failed - left
        never = sum((handled - ledger.entered).values())
        assert never == stats.dropped, (
            "counted as handled, and was not given to anybody"
        )
        attempts = self.outcome.retry.attempts
        if not self.outcome.retry.split:
            assert max(ledger.entered.values(), default=0) <= attempts
        elif ledger.entered:
            assert ledger.entered[0] <= 8


Part: TypeAlias = Callable[[StruckQueue], Coroutine[Any, Any, None]]


async def fill(queue: StruckQueue) -> None:
    """Let the drain tasks work for a while."""
    await asyncio.sleep(1.0)


async def flush(queue: StruckQueue) -> None:
    """Wait for all; with those that hang, for a while."""
    with contextlib.suppress(DeliveryError, TimeoutError):
        await queue.queue.flush(timeout=5.0)


async def shut_down(queue: StruckQueue) -> None:
    """Give back what is not handled by the deadline."""
    queue.has_shut_down = True
    left = await queue.queue.shutdown(queue.outcome.deadline)
    # No call, hence no strike, in between: else the next `shutdown` returns them.
    queue.left += left
