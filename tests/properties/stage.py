"""A real queue on a stepped loop, with everything that was begun on it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueStats,
    DrainTaskPolicy,
    Rebalancing,
    Retry,
    WhenFull,
)
from batchqueue_async._engine.runtime.loop_end import LoopRegistry
from tests.properties.calls import Calls, Producing
from tests.properties.gated_handler import GatedHandler, HookedHandler, Item
from tests.properties.ledger import Ledger
from tests.properties.promises import check_owners, check_room, check_stats, check_take
from tests.properties.setup import IDLE, INTERVAL, Plans, Setup
from tests.properties.stepped_loop import SteppedLoop


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
        self.calls = Calls(self.ledger)
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
        self.ledger.partitions = self.queue._parts.partitions
        self.number = 0
        try:
            self.run_to_end(self.loop.begin(self.queue.start()))
        except BaseException:
            self.close()
            raise

    @property
    def is_held_up(self) -> bool:
        """Whether a drain task may have a reason not to take what waits."""
        return (
            bool(self.ledger.calls)
            or any(each.pausing is not None for each in self.ledger.partitions)
            or any(each.owner is None for each in self.queue.stats().partitions)
        )

    def new_items(self, *of: type[Item]) -> list[Item]:
        first, self.number = self.number, self.number + len(of)
        return [kind(first + position) for position, kind in enumerate(of)]

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

    def produce(self, call: Coroutine[Any, Any, Any], items: list[Item]) -> Producing:
        producing = Producing(self.loop.begin(call), items)
        self.calls.producing.append(producing)
        self.check()
        return producing

    def begin_flush(self, timeout: float | None) -> asyncio.Task[None]:
        before = [item for items in self.ledger.arrived.values() for item in items]
        task = self.loop.begin(self.queue.flush(timeout))
        self.calls.flushes.append((task, before))
        self.check()
        return task

    def begin_shutdown(self, timeout: float | None) -> asyncio.Task[list[Item]]:
        task = self.loop.begin(self.queue.shutdown(timeout))
        self.calls.closings.append(task)
        self.check()
        return task

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
        ownership, is_closing = self.queue._parts.ownership, self.calls.is_closing
        self.ledger.observe(ownership.owner_of)
        for partition in self.ledger.partitions:
            check_room(partition, partition.maxsize, is_closing=is_closing)
            check_take(partition, self.setup.max_batch)
        check_owners(ownership, self.ledger.partitions, is_closing=is_closing)
        self.calls.see_ends()
        assert not self.loop.errors, f"the loop was told of {self.loop.errors}"

    def check_stats(self) -> BatchQueueStats:
        return check_stats(self.queue)

    def check_settled(self) -> None:
        stats = self.check_stats()
        left = {"waiting": stats.waiting, "in flight": stats.in_flight}
        assert not any(left.values()), f"a lost wake-up: {left}"

    def open_gates(self) -> None:
        for handler in self.handlers:
            handler.is_open = True
        for call in self.ledger.calls:
            call.end()

    def check_nothing_survives(self) -> None:
        alive = asyncio.all_tasks(self.loop)
        assert not alive, f"F3: {alive} survive the shutdown"
        assert self.loop.next_timer is None, "F3: a timer survives the shutdown"
        assert not self.loop.ready, "F3: a callback survives the shutdown"

    def close(self) -> None:
        """Shut the queue down and end the loop, whatever state a failure left."""
        self.open_gates()
        ending = self.loop.begin(self.queue.shutdown(0.0))
        if not self.loop.run_until(ending.done, patience=30.0):
            # A planted bug may keep it from ending: then as `asyncio.run` does it.
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until(lambda: False, patience=30.0)
            LoopRegistry.of(self.loop).forget(self.queue._parts.lifecycle)
        if ending.done() and not ending.cancelled():
            ending.exception()  # what is wrong was told by the check that failed
        self.loop.close()
