"""One setting under one load, and what came of it."""

from __future__ import annotations

import asyncio
import copy
import logging
import random
import types
from array import array
from asyncio import _get_running_loop
from collections.abc import (
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueStats,
    DrainTaskPolicy,
    Retry,
    SharedDrainTasks,
)
from batchqueue_async._engine.queue import parts_of
from batchqueue_async._functions import require_sync_function
from batchqueue_async._log import logger
from batchqueue_async._policies.selectors import KeySelector, QueueSelector
from batchqueue_async._policies.sizing import length_of
from batchqueue_async._threads.clock import sleep
from batchqueue_async._validation import (
    refuse,
    require_at_least,
    require_instance,
    require_iterable,
)
from batchqueue_async.testing import VirtualTimeLoop

Arrivals = Iterable[tuple[float, object]]
"""Pairs of the second at which an item comes and the item, in order of time."""

HandlerCost = Callable[[list[Any]], float]
"""Returns the seconds that a call with this batch takes, or raises what it raises."""

NAME = "a simulation"
_SEED = 23


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A load as the queue took it; seconds are virtual ones."""

    arrivals: int
    """Items that came."""
    seconds: float
    """From the start to the end of the shutdown."""
    peak_waiting: int
    """The most items that waited in partitions at the same time."""
    peak_producers: int
    """The most producers that waited for room at the same time, each with an item."""
    batches: int
    """Calls of handlers."""
    last_seconds: float
    """Seconds from the last arrival until everything was settled, or given up."""
    stats: BatchQueueStats
    """The queue's account at the end: outcomes, partitions, drain tasks."""
    ages: Sequence[float] = field(repr=False)
    """Seconds from arrival to the end of the handler's call, of each handled item;
    ascending."""

    @property
    def handled(self) -> int:
        """Items whose handler returned."""
        return self.stats.handled

    @property
    def failed(self) -> int:
        """Items whose handler failed for good."""
        return self.stats.failed

    @property
    def lost(self) -> int:
        """Items that were refused, displaced, of no handler's type, or left."""
        stats = self.stats
        return stats.rejected + stats.dropped + stats.unhandled + stats.returned

    @property
    def left(self) -> int:
        """Items that the shutdown's deadline left unhandled."""
        return self.stats.returned

    @property
    def p50(self) -> float:
        """The median age."""
        return self.age(0.5)

    @property
    def p99(self) -> float:
        """The age that 99 of 100 items do not exceed."""
        return self.age(0.99)

    @property
    def mean_batch(self) -> float:
        """Items per call of a handler; 0.0 if there was none."""
        return len(self.ages) / self.batches if self.batches else 0.0

    @property
    def use(self) -> tuple[float, ...]:
        """The part of its time that each drain task spent in cycles."""
        span = self.seconds or 1.0
        return tuple(each.busy / span for each in self.stats.drain_tasks)

    def age(self, part: float) -> float:
        """Return the age that this part of all handled items do not exceed.

        Args:
            part: From 0.0 to 1.0.

        Returns:
            Seconds; 0.0 if nothing was handled.

        Raises:
            TypeError, ValueError: It is no such part.
        """
        require_instance("part", part, (int, float), "a number from 0 to 1")
        if not 0 <= part <= 1:
            refuse("part", "from 0 to 1", part)
        if not self.ages:
            return 0.0
        return self.ages[min(len(self.ages) - 1, int(part * len(self.ages)))]


def simulate(
    config: BatchQueueConfig[Any],
    arrivals: Arrivals,
    handler_cost: HandlerCost,
    *,
    weights: dict[type, float] | None = None,
) -> Simulation:
    """Run a load through the real engine, in virtual time; nothing is written.

    Each item comes at its time, whatever waits: one for which there is no room waits as
    a producer of its own would (`WAIT`). After the last one the queue is shut down
    within the config's `shutdown_timeout`. What the engine itself computes takes no
    virtual time, some 10 us per item in truth, so it is right for queues whose time
    goes into their handlers. Called on a loop it blocks that until it is done.

    Args:
        config: What is to be tried. Its consumer is replaced by one that takes
            `handler_cost`; without a consumer, each type of item gets such a handler.
        arrivals: Seconds from the start when each is ready to be produced, and items:
            recorded, or described by a generator. They may be a million.
        handler_cost: Seconds of a handler's call for a batch. It may raise what a sink
            raises that is down: then the config's `retry` counts.
        weights: Of handlers by type, for adaptive partitions; 1.0 for all others.

    Returns:
        What waited at most, how old items became, what was lost.

    Raises:
        TypeError, ValueError: Arrivals go back in time, or a cost is no number of
            seconds.
    """
    require_instance("config", config, BatchQueueConfig, "a BatchQueueConfig")
    require_sync_function("handler_cost", handler_cost, 1, "one argument, a batch")
    if weights is not None:
        require_instance("weights", weights, Mapping, "a dict of types and weights")
    run = _Run(config, handler_cost, weights or {})
    if _get_running_loop() is None:
        return _simulated(run, arrivals)
    # A loop runs here, as in a notebook; the new thread has none.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_simulated, run, arrivals).result()


def _simulated(run: _Run, arrivals: Arrivals) -> Simulation:
    def is_told(record: logging.LogRecord) -> bool:
        # The simulated queue logs what has not really happened, so that is dropped.
        return NAME not in record.getMessage()

    logger.logger.addFilter(is_told)
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(run.over(arrivals))
    finally:
        logger.logger.removeFilter(is_told)


class _Arrival:
    """An item on its way; each type of item has a subclass, which stands for it."""

    __slots__ = ("at", "item")

    def __init__(self, item: Any, at: float) -> None:  # noqa: ANN401 - any item
        self.item = item
        self.at = at


class _Run:
    def __init__(
        self,
        config: BatchQueueConfig[Any],
        handler_cost: HandlerCost,
        weights: dict[type, float],
    ) -> None:
        self._cost = handler_cost
        self._weights = weights
        self._has_consumer = config.consumer is not None
        self._shutdown_timeout = config.shutdown_timeout
        self._stand_ins: dict[type, type[_Arrival]] = {}
        self._queue: BatchQueue[_Arrival] = BatchQueue(NAME, self._own(config))
        self._partitions = parts_of(self._queue).partitions
        self._ages = array("d")
        self._batches = 0
        self._mistake: Exception | None = None
        # Items that are accepted, and not settled yet.
        self._inside = 0
        self._peak_waiting = 0
        self._producers: set[asyncio.Task[None]] = set()
        self._peak_producers = 0

    async def over(self, arrivals: Arrivals) -> Simulation:
        loop = asyncio.get_running_loop()
        count = 0
        async with self._queue as queue:
            for at, item in _in_order(arrivals):
                if at > loop.time():
                    await sleep(at - loop.time())
                self._arrive(at, item)
                count += 1
                if self._mistake is not None:
                    break
            left_at = loop.time()
            await self._shut_down()
        if self._mistake is not None:
            raise self._mistake
        return Simulation(
            arrivals=count,
            seconds=loop.time(),
            peak_waiting=self._peak_waiting,
            peak_producers=self._peak_producers,
            batches=self._batches,
            last_seconds=loop.time() - left_at,
            stats=queue.stats(),
            ages=array("d", sorted(self._ages)),
        )

    def _arrive(self, at: float, item: object) -> None:
        kind = type(item)
        arrival = (self._stand_ins.get(kind) or self._stand_in(kind))(item, at)
        producing = self._queue.produce(arrival)
        try:
            # Stepped by hand: a task for each item would take longer than all the rest.
            waits_for = producing.send(None)
        except StopIteration as done:
            self._produced(is_accepted=done.value)
        else:
            producer = asyncio.create_task(self._produce(producing, waits_for))
            self._producers.add(producer)
            producer.add_done_callback(self._producers.discard)
            self._peak_producers = max(self._peak_producers, len(self._producers))

    async def _produce(
        self, producing: Coroutine[Any, Any, bool], waits_for: object
    ) -> None:
        self._produced(is_accepted=await _rest_of(producing, waits_for))

    def _produced(self, *, is_accepted: bool) -> None:
        self._inside += is_accepted
        # Only if more are inside than ever waited can more be waiting now.
        if self._inside > self._peak_waiting:
            waiting = sum(len(each.items) for each in self._partitions)
            self._peak_waiting = max(self._peak_waiting, waiting)

    async def _consume(self, batch: list[_Arrival]) -> None:
        self._batches += 1
        seconds = self._cost([each.item for each in batch])
        try:
            require_at_least("what handler_cost returns", seconds, 0)
        except (TypeError, ValueError) as error:
            # The caller's mistake, not a failure of the simulated sink.
            self._mistake = error
            raise
        if seconds:
            await sleep(seconds)
        now = asyncio.get_running_loop().time()
        self._inside -= len(batch)
        # The clock counts microseconds, and may be half of one behind an arrival.
        self._ages.extend([max(0.0, now - each.at) for each in batch])

    async def _shut_down(self) -> None:
        loop = asyncio.get_running_loop()
        timeout = self._shutdown_timeout
        end = None if timeout is None else loop.time() + timeout
        if self._producers:
            # Items that wait for room came before the shutdown, so they get in first.
            await asyncio.wait(self._producers, timeout=timeout)
        await self._queue.shutdown(None if end is None else max(0.0, end - loop.time()))

    def _stand_in(self, kind: type) -> type[_Arrival]:
        """Return the class that stands for a type of item, with its handler."""
        made = type(kind.__name__, (_Arrival,), {"__slots__": ()})
        self._stand_ins[kind] = made
        if not self._has_consumer:
            self._queue.add_handler(made, self._consume, self._weights.get(kind, 1.0))
        return made

    def _own(self, config: BatchQueueConfig[Any]) -> BatchQueueConfig[_Arrival]:
        return replace(
            config,
            consumer=self._consume if self._has_consumer else None,
            selector=_selector_of(config.selector),
            drain_tasks=_drain_tasks_of(config),
            size_of=_size_of(config) if config.counts_sizes else None,
            on_error=self._failed,
            on_retry=None,
            retry=_same_each_time(config.retry),
        )

    def _failed(self, batch: list[_Arrival], _: BaseException) -> None:
        self._inside -= len(batch)


def _drain_tasks_of(config: BatchQueueConfig[Any]) -> DrainTaskPolicy:
    """Return its own: nobody is here with whom it could share others."""
    declared = config.drain_tasks
    if isinstance(declared, SharedDrainTasks):
        return DrainTaskPolicy.fixed(1)
    return declared


def _in_order(arrivals: Arrivals) -> Iterator[tuple[float, object]]:
    last = 0.0
    require_iterable("arrivals", arrivals, "an iterable of pairs: a second, an item")
    for arrival in arrivals:
        try:
            at, item = arrival
            # As two comparisons, which numbers of any library have; nan is in no range.
            is_next, is_finite = at >= last, -inf < at < inf
        except (TypeError, ValueError):
            refuse("an arrival", "a pair: a second, an item", arrival, TypeError)
        if not is_finite:
            refuse("the second of an arrival", "finite", at)
        if not is_next:
            msg = f"arrivals must not go back in time, got {at} after {last}"
            raise ValueError(msg)
        last = at
        yield at, item


def _size_of(config: BatchQueueConfig[Any]) -> Callable[[_Arrival], float]:
    size_of = config.size_of or length_of
    return lambda arrival: size_of(arrival.item)


def _same_each_time(retry: Retry) -> Retry:
    """Return a Retry whose pauses are as random, but the same in each simulation."""
    numbers, same = random.Random(_SEED), copy.copy(retry)
    vars(same)["wait_before"] = lambda attempt, _: retry.wait_before(
        attempt, numbers.random()
    )
    return same


def _selector_of(selector: Any) -> Any:  # noqa: ANN401 - for items, then for arrivals
    if isinstance(selector, QueueSelector):
        return selector
    if isinstance(selector, KeySelector):
        key = selector.key
        return replace(selector, key=lambda arrival: key(arrival.item))
    return lambda arrival, partitions: selector(arrival.item, partitions)


@types.coroutine
def _rest_of(
    coroutine: Coroutine[Any, Any, bool], waits_for: object
) -> Generator[Any, None, bool]:
    """Go on with a coroutine that has had its first step."""
    yield waits_for
    return (yield from coroutine.__await__())
