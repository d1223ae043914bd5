"""Minutes of mixed faults from threads and tasks, and what they did (`make soak`).

    SOAK_SECONDS=60 SOAK_SEED=7 python -m tests.stress.soak

Exit code 1 if an item was lost, doubled or reordered, a handler was entered twice or
after its end, accounts do not add up, somebody was left hanging, anything survives the
end, or memory grows.
"""

# ruff: noqa: T201  # a program prints

import asyncio
import faulthandler
import logging
import os
import random
import sys
import threading
import time
from collections import Counter

from batchqueue_async import BatchQueueManager, SyncBatchQueue
from tests.stress.memory import Memory
from tests.stress.soak_ends import Ends
from tests.stress.soak_lives import Lives
from tests.stress.soak_queues import QUEUES, Soaked, grow, open_queue
from tests.stress.soak_work import (
    PATIENCE,
    cancelled_producer,
    flusher,
    producer,
    replacer,
    thread_producer,
)
from tests.stress.verdict import Verdict

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
WORK = (producer, cancelled_producer, flusher, replacer, grow)
HANG = 4 * PATIENCE
"""Beyond the time given: then somebody hangs."""


async def soak(verdict: Verdict) -> None:
    """Run everything for the time given, then drain."""
    stop = threading.Event()
    async with BatchQueueManager() as manager:
        queues = {name: await open_queue(manager, name, name, SEED) for name in QUEUES}
        lives: list[Lives | Ends] = [
            *(Lives(manager, f"lives {n}", SEED * 77 + n) for n in (1, 2)),
            *(Ends(f"ends {n}", SEED * 99 + n) for n in (1, 2)),
        ]
        threads = start_threads(list(queues.values()), stop)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sample(verdict.memory, stop))
                for each in lives:
                    tasks.create_task(each.go_on(stop))
                for number, soaked in enumerate(queues.values()):
                    chance = random.Random(SEED * 1000 + number)
                    for work in WORK:
                        tasks.create_task(work(soaked, chance, stop))
                await asyncio.sleep(SECONDS)
                stop.set()
        finally:
            # Also when one of them failed: threads are not cancelled.
            stop.set()
        # Their threads may produce into them beyond the end.
        left = {name: await manager.shutdown(name, PATIENCE) for name in queues}
        for thread in threads:
            await asyncio.to_thread(thread.join)
    for name, soaked in queues.items():
        verdict.add(name, soaked.finish(left[name]), soaked.tally.examples)
    for each in lives:
        verdict.add(each.name, each.counts, each.examples)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    verdict.errors += [f"survives: {task.get_name()}" for task in others]


def start_threads(
    queues: list[Soaked], stop: threading.Event
) -> list[threading.Thread]:
    """Start two producers per queue."""
    threads = [
        threading.Thread(
            target=thread_producer,
            args=(each, SyncBatchQueue(each.queue), f"thread {n}", stop, SEED + n),
            name=f"producer {n}",
        )
        for n, each in enumerate(queues * 2)
    ]
    for thread in threads:
        thread.start()
    return threads


async def sample(memory: Memory, stop: threading.Event) -> None:
    started = time.monotonic()
    while not stop.is_set():
        await asyncio.sleep(min(1.0, SECONDS / 30))
        memory.sample(time.monotonic() - started)


async def soak_or_hang(verdict: Verdict) -> None:
    async with asyncio.timeout(SECONDS + HANG):
        await soak(verdict)


def main() -> int:
    print(f"{SECONDS:.0f} s, seed {SEED}, Python {sys.version.split()[0]}", flush=True)
    # A thread that hangs keeps the loop from ending, and no exception gets that far.
    faulthandler.dump_traceback_later(SECONDS + 2 * HANG, exit=True)
    # The queues log each fault that the handlers make.
    logging.getLogger("batchqueue_async").disabled = True
    before = Counter(threading.enumerate())
    with Verdict.watching() as verdict:
        asyncio.run(soak_or_hang(verdict))
    survivors = Counter(threading.enumerate()) - before
    verdict.errors += [f"survives: {thread.name}" for thread in survivors]
    return 0 if verdict.told() else 1


if __name__ == "__main__":
    sys.exit(main())
