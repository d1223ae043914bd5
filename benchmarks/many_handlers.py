"""What hundreds of handlers cost: a processor's share, by what they are doing.

The same number of items comes, so the same number of batches. What grows is what is
looked at for each of them.
"""

import asyncio
import logging
import time
from functools import partial
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Retry,
)
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Column, Table
from benchmarks.turns import Turns

RATE = 2_000
"""Items a second, of all types together, one by one."""
HANDLERS = (100, 1_600)

BATCHES = "get batches"
IDLE = "are told to be idle"
LINGER = "let items linger"
RETRY = "fail, and are tried again"


class Handler:
    """Takes batches."""

    async def consume(self, batch: list[Any]) -> None:
        """Do nothing."""


class WithOnIdle(Handler):
    """Has a hook."""

    async def on_idle(self) -> None:
        """Do nothing."""


class Failing(Handler):
    """Fails whenever its type's items come."""

    async def consume(self, batch: list[Any]) -> None:
        """Be down."""
        raise ConnectionError


PARTITIONS = PartitionPolicy.adaptive()
DRAIN_TASKS = DrainTaskPolicy.fixed(4)

STATES: dict[str, tuple[type[Handler], BatchQueueConfig[Any]]] = {
    BATCHES: (Handler, BatchQueueConfig(partitions=PARTITIONS)),
    # For each handler a call in ten seconds at least.
    IDLE: (WithOnIdle, BatchQueueConfig(idle=IdleBackoff(longest=10.0))),
    LINGER: (Handler, BatchQueueConfig(partitions=PARTITIONS, linger=0.2)),
    # What fails waits for the next attempt, for a time of its own.
    RETRY: (
        Failing,
        BatchQueueConfig(
            retry=Retry(attempts=100, wait_initial=0.5, wait_max=0.5),
            on_error=lambda _, __: None,
            drain_tasks=DRAIN_TASKS,
            partitions=PARTITIONS,
        ),
    ),
}


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Measure each state with more and more handlers."""
    found = Table(
        "growth/handlers",
        f"Handlers that share {RATE:,} items/s, by what they do",
        [
            Column("they"),
            *(Column(f"CPU of a core, {count:,}", "percent") for count in HANDLERS),
            Column(f"{HANDLERS[-1]:,} beside {HANDLERS[0]}", "times"),
        ],
    )
    samples = turns.take(
        {
            f"{state}, {count}": partial(measure, loop, state, count, scale)
            for state in STATES
            for count in HANDLERS
        },
        warm_up=False,
        rounds=scale.of(3, 1),
    )
    for state in STATES:
        mine = [samples[f"{state}, {count}"] for count in HANDLERS]
        found.add(state, *(each.median for each in mine), mine[-1].beside(mine[0]))
    return found


def measure(loop: LoopFactory, state: str, count: int, scale: Scale) -> float:
    """Return which part of a processor it takes."""
    log = logging.getLogger("batchqueue_async")
    log.disabled = True  # It would tell of thousands of failures.
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(_share(*STATES[state], count, scale.of(0.8, 0.3)))
    finally:
        log.disabled = False


async def _share(
    handler: type[Handler], config: BatchQueueConfig[Any], count: int, seconds: float
) -> float:
    types = [type(f"Type{number}", (), {}) for number in range(count)]
    async with BatchQueue("many handlers", config) as queue:
        for each in types:
            queue.add_handler(each, handler())
        await queue.produce_many([each() for each in types])
        # All have had a batch, and what they do has settled.
        await asyncio.sleep(seconds / 2)
        cpu, started = time.process_time(), time.perf_counter()
        sent = 0
        while (now := time.perf_counter() - started) < seconds:
            for number in range(sent, round(now * RATE)):
                queue.produce_nowait(types[number * 7 % count]())
            sent = round(now * RATE)
            await asyncio.sleep(0.001)
        used = (time.process_time() - cpu) / (time.perf_counter() - started)
        await queue.shutdown(timeout=0.0)
    return used
