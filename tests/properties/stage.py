"""A real queue on a stepped loop, with everything that was begun on it."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueStats,
    DeliveryError,
    DrainTaskPolicy,
    IdleBackoff,
    Rebalancing,
    Retry,
    WhenFull,
)
from batchqueue_async._engine.partition import Partition
from tests.properties.gated_handler import GatedHandler, HookedHandler, Item
from tests.properties.ledger import Ledger
from tests.properties.stepped_loop import SteppedLoop
from tests.support.oracle import check_accounts

INTERVAL = 1.0
IDLE = IdleBackoff(0.001, 0.5)


class Plans:
    """A balancer that gives each partition the owner that was drawn, once."""

    def __init__(self) -> None:
        self.plan: Sequence[int] = ()

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> Sequence[int] | None:
        plan, self.plan = self.plan, ()
        if not plan:
            return None
        return [plan[p % len(plan)] % drain_tasks for p in range(len(owners))]


@dataclass(frozen=True)
class Setup:
    """What differs between two examples of one machine."""

    drain_tasks: int
    buffer_size: int
    max_batch: int | None
    linger: float
    retry: Retry
    timeout: float | None
    hooks: bool
    stubborn: bool


setups = st.builds(
    Setup,
    drain_tasks=st.integers(1, 3),
    buffer_size=st.integers(1, 4),
    max_batch=st.sampled_from([None, 1, 2, 3]),
    linger=st.sampled_from([0.0, 0.0, 0.01]),
    retry=st.sampled_from(
        [Retry(), Retry(attempts=2), Retry(attempts=2, split=True), Retry(split=True)]
    ),
    timeout=st.sampled_from([None, None, 0.2]),
    hooks=st.booleans(),
    stubborn=st.booleans(),
)


@dataclass(eq=False)
class Producing:
    """A `produce` or `produce_many`, and what it shall bring in."""

    task: asyncio.Task[Any]
    items: list[Item]


class Stage:
    """Begins calls, lets them run in any order, and looks on after every step."""

    def __init__(
        self,
        setup: Setup,
        *,
        by_type: bool = True,
        has_consumer: bool = False,
        when_full: WhenFull = WhenFull.WAIT,
        **settings: Any,  # noqa: ANN401  # of BatchQueueConfig
    ) -> None:
        self.setup = setup
        self.buffer_size = setup.buffer_size
        self.loop = SteppedLoop()
        self.loop.open()
        self.plans = Plans()
        self.handlers: list[GatedHandler] = []
        self._is_exclusive = by_type and not has_consumer
        self.ledger = Ledger(
            by_type=by_type,
            retries=setup.retry != Retry(),
            waits=when_full is WhenFull.WAIT,
        )
        config = BatchQueueConfig[Item](
            **{
                "drain_tasks": DrainTaskPolicy.fixed(setup.drain_tasks),
                "buffer_size": setup.buffer_size,
                "max_batch": setup.max_batch,
                "linger": setup.linger,
                "handler_timeout": setup.timeout,
                "idle": IDLE,
                "rebalancing": Rebalancing(self.plans, INTERVAL),
                "retry": setup.retry,
                "on_error": self.ledger.on_error,
                "consumer": self.new_handler(Item) if has_consumer else None,
                "when_full": when_full,
                **settings,
            }
        )
        self.queue = BatchQueue("q", config)
        self.ledger.partitions = self.queue._layout.partitions
        self.producing: list[Producing] = []
        self.flushes: list[tuple[asyncio.Task[None], list[Item]]] = []
        self.closings: list[asyncio.Task[list[Item]]] = []
        self.cancelled: set[asyncio.Task[Any]] = set()
        self.number = 0
        self.run_to_end(self.loop.begin(self.queue.start()))

    @property
    def is_closing(self) -> bool:
        return bool(self.closings)

    @property
    def under_way(self) -> list[asyncio.Task[Any]]:
        """What callers wait for."""
        return [
            *(each.task for each in self.producing),
            *(task for task, _ in self.flushes),
            *(task for task in self.closings if not task.done()),
        ]

    @property
    def is_held_up(self) -> bool:
        """Whether a drain task may have a reason not to take what waits."""
        return (
            bool(self.ledger.calls)
            or any(each.hold.is_on for each in self.ledger.partitions)
            or any(each.owner is None for each in self.queue.stats().partitions)
        )

    def new_items(self, *of: type[Item]) -> list[Item]:
        self.number += len(of)
        return [
            kind(self.number - len(of) + position) for position, kind in enumerate(of)
        ]

    def new_handler(self, kind: type[Item]) -> GatedHandler:
        cls = HookedHandler if self.setup.hooks else GatedHandler
        handler = cls(
            kind,
            self.ledger,
            exclusive=self._is_exclusive,
            stubborn=self.setup.stubborn,
        )
        self.handlers.append(handler)
        return handler

    def produce(
        self, call: Coroutine[Any, Any, Any], items: list[Item]
    ) -> asyncio.Task[Any]:
        task = self.loop.begin(call)
        self.producing.append(Producing(task, items))
        self.check()
        return task

    def flush(self, timeout: float | None) -> asyncio.Task[Any]:
        before = [item for items in self.ledger.arrived.values() for item in items]
        task = self.loop.begin(self.queue.flush(timeout))
        self.flushes.append((task, before))
        self.check()
        return task

    def shutdown(self, timeout: float | None) -> asyncio.Task[list[Item]]:
        task = self.loop.begin(self.queue.shutdown(timeout))
        self.closings.append(task)
        self.check()
        return task

    def cancel(self, task: asyncio.Task[Any]) -> None:
        self.cancelled.add(task)
        task.cancel()

    def step(self, choice: int = 0) -> None:
        """Run one ready callback, and look at everything."""
        self.loop.step(choice)
        self.check()

    def run_dry(self) -> None:
        """Run until nothing is ready."""
        turns = 0
        while self.loop.ready:
            self.step()
            turns += 1
            assert turns < 10_000, "it spins"
        self.check_stats()

    def run_to_end(self, task: asyncio.Task[Any], patience: float = 30.0) -> None:
        """Run, and let time pass, until the task is done."""
        until = self.loop.time() + patience
        self.run_dry()
        while not task.done():
            timer = self.loop.next_timer
            assert timer is not None, f"a lost wake-up: nothing will wake {task}"
            assert timer <= until, f"not done within {patience} s: {task}"
            self.loop.advance(timer)
            self.run_dry()

    def pass_time(self, seconds: float) -> None:
        """Let exactly so much time pass, with everything that happens in it."""
        until = self.loop.time() + seconds
        self.run_dry()
        while (timer := self.loop.next_timer) is not None and timer <= until:
            self.loop.advance(timer)
            self.run_dry()
        self.loop.advance(until)
        self.run_dry()

    def check(self) -> None:
        """The promises that hold at every moment."""
        ownership = self.queue._layout.ownership
        self.ledger.observe(ownership.owner_of)
        owned = [ownership.owned_by(each) for each in range(ownership.drain_tasks)]
        for partition in self.ledger.partitions:
            self._check_room(partition)
            # E4: one owner or in a handoff; the drain tasks' lists say the same.
            owners = [o for o, each in enumerate(owned) if partition.index in each]
            owner = ownership.owner_of(partition.index)
            expected = [] if owner is None else [owner]
            assert owners == expected, f"E4: {partition.index} is in lists of {owners}"
            assert owner is not None or not self.is_closing, "E4: closing, not owned"
        self._end_calls()
        assert not self.loop.errors, self.loop.errors

    def check_stats(self) -> BatchQueueStats:
        """The same accounts and owners, as the queue says them to its user."""
        stats = check_accounts(self.queue)
        assert isinstance(stats, BatchQueueStats)
        for drain_task in stats.drain_tasks:
            owners = {stats.partitions[p].owner for p in drain_task.partitions}
            assert owners <= {drain_task.index}
        return stats

    def _check_room(self, partition: Partition[Item]) -> None:
        line, waiting = partition.line, len(partition.items)
        held, size = waiting + line.reserved, self.buffer_size
        assert held <= size, "C1: above buffer_size"
        if len(line) and not self.is_closing:
            unserved = sum(each.wants - each.granted for each in line._waiters)
            assert held == size or not unserved, "room, and yet somebody waits"
        if (most := self.setup.max_batch) is not None:
            assert partition.accounts.in_flight <= most, "C1: a take above max_batch"

    def _end_calls(self) -> None:
        for each in [each for each in self.producing if each.task.done()]:
            self.producing.remove(each)
            self._check_answer(each)
        for task, before in [each for each in self.flushes if each[0].done()]:
            self.flushes.remove((task, before))
            self._check_flushed(task, before)
        for closing in [each for each in self.closings if each.done()]:
            if not closing.cancelled():
                self.ledger.was_returned(closing.result())
                # A second look at it finds nothing more.
                closing.result().clear()

    def _check_answer(self, producing: Producing) -> None:
        task, items = producing.task, producing.items
        placed = [item for item in items if item.number in self.ledger.place]
        if task.cancelled():
            assert task in self.cancelled, f"nobody cancelled {task}"
            assert len(items) > 1 or not placed, "C2: it raised, and has accepted"
            return
        answer = int(task.result())
        assert answer == len(placed), f"it says {answer}, accepted are {placed}"
        if self.ledger.waits and not self.is_closing:
            assert answer == len(items), f"refused without a reason: {items}"

    def _check_flushed(self, task: asyncio.Task[None], before: list[Item]) -> None:
        if task.cancelled():
            assert task in self.cancelled, f"nobody cancelled {task}"
            return
        error = task.exception()
        if isinstance(error, TimeoutError):
            return
        assert error is None or isinstance(error, DeliveryError), error
        if error is not None and self.is_closing:
            return  # the deadline returned them: `shutdown` is about to say which
        open_numbers = self.ledger.open_numbers()
        late = [item for item in before if item.number in open_numbers]
        assert not late, f"F5: flushed, but {late} are not settled"

    def open_gates(self) -> None:
        for handler in self.handlers:
            handler.is_open = True
        for call in self.ledger.calls:
            if not call.gate.done():
                call.gate.set_result(None)

    def check_nothing_survives(self) -> None:
        assert not asyncio.all_tasks(self.loop)
        assert self.loop.next_timer is None
        assert not self.loop.ready

    def close(self) -> None:
        """End everything, whatever its state: after a failure that is a lot."""
        self.open_gates()
        for _ in range(1000):
            if not (tasks := asyncio.all_tasks(self.loop)):
                break
            for task in [] if self.loop.ready else tasks:
                task.cancel()
            self.loop.step()
        self.loop.close()
