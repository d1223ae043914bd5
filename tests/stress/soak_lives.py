"""Queues that live for a moment: made under one name, fed, shut down by a deadline."""

import asyncio
import random
import threading
from collections import Counter

from batchqueue_async import BatchQueueManager, SyncBatchQueue
from tests.stress.soak_queues import QUEUES, Soaked, open_queue
from tests.stress.soak_work import (
    cancelled_producer,
    flusher,
    producer,
    replacer,
    thread_producer,
)
from tests.stress.tally import Item

DEADLINES = (0.0, 0.01, 0.1, 1.0, 30.0)
MANY = 0x10000
"""More seeds than any one life uses."""


class Lives:
    """One life after the other, and what came of all of them together."""

    def __init__(self, manager: BatchQueueManager, name: str, seed: int) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.examples: list[str] = []
        self._manager = manager
        self._seed = seed
        self._chance = random.Random(seed)

    async def go_on(self, stop: threading.Event) -> None:
        """Live until the soak stops."""
        while not stop.is_set():
            self._seed += MANY
            await self._live()

    async def _live(self) -> None:
        like = self._chance.choice(list(QUEUES))
        soaked = await open_queue(self._manager, self.name, like, self._seed)
        end = threading.Event()
        bridge = SyncBatchQueue(soaked.queue)
        thread = threading.Thread(
            target=thread_producer,
            args=(soaked, bridge, f"thread {self.name}", end, self._seed),
        )
        thread.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (producer, cancelled_producer, flusher, replacer):
                    tasks.create_task(work(soaked, self._chance, end))
                await asyncio.sleep(self._chance.random())
                returned = await self._shut_down(soaked)
                # All of them produce beyond the end: nothing may come in then.
                end.set()
        finally:
            end.set()
        await asyncio.to_thread(thread.join)
        self.counts.update(soaked.finish(returned))
        self.counts["lives"] += 1
        self.examples += soaked.tally.examples[:5]

    async def _shut_down(self, soaked: Soaked) -> list[Item]:
        """Shut down, often twice at once; one of both gets the list."""
        timeout = self._chance.choice(DEADLINES)
        calls = [self._manager.shutdown(self.name, timeout)]
        if self._chance.random() < 0.5:
            calls.append(soaked.queue.shutdown(2 * timeout))
        lists = await asyncio.gather(*calls)
        assert sum(map(bool, lists)) <= 1, "two calls returned what was left"
        return [item for each in lists for item in each]
