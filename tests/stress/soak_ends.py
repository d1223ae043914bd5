"""Queues that come and go in cancel scopes, with their loop, and with all its tasks.

Every life is a queue, or a chain in a manager, that is left in one of many ways. Items
are counted exactly: each ends once, handled, told to `on_error` or returned.
"""

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager, Retry

Live = Callable[[], Coroutine[Any, Any, None]]


class Ledger:
    """What became of one life's items."""

    def __init__(self) -> None:
        self.accepted = 0
        self.handled: Counter[int] = Counter()
        self.told: Counter[int] = Counter()

    def missing(self) -> int:
        return sum(not (self.handled[n] or self.told[n]) for n in range(self.accepted))

    def doubled(self) -> int:
        ended = self.handled + self.told
        return sum(count - 1 for count in ended.values())


class Ends:
    """One life after the other, each left in its own way.

    Args:
        seed: Of what happens in them.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.examples: list[str] = []
        self._chance = random.Random(seed)

    async def go_on(self, stop: threading.Event) -> None:
        """Live until the soak stops."""
        ways = (self._timeout, self._sibling, self._nested, self._cancelled_before)
        while not stop.is_set():
            way = self._chance.choice((*ways, self._native))
            live = self._chance.choice((self._queue, self._manager))
            ledger, queues = Ledger(), list[BatchQueue[int]]()
            if self._chance.random() < 0.2:
                # A loop of its own ends with the queue in it.
                run = self._chance.choice((self._forget, self._cancel_all))
                await asyncio.to_thread(asyncio.run, run(ledger, queues))
                self._book(run.__name__, ledger, queues)
                continue
            await way(lambda: live(ledger, queues))  # noqa: B023 - called in this turn
            # A native cancellation leaves the closing to itself.
            for queue in queues:
                await queue.close()
            self._book(f"{way.__name__} {live.__name__}", ledger, queues)

    def _book(self, what: str, ledger: Ledger, queues: list[BatchQueue[int]]) -> None:
        self.counts["ends"] += 1
        self.counts["accepted"] += ledger.accepted
        self.counts["handled"] += ledger.handled.total()
        self.counts["failed"] += ledger.told.total()
        for bad, count in (("lost", ledger.missing()), ("doubled", ledger.doubled())):
            self.counts[bad] += count
            if count:
                self.examples.append(f"{bad} {count} in {what}")
        for queue in queues:
            stats = queue.stats()
            ended = stats.handled + stats.failed + stats.returned
            self.counts["wrong accounts"] += stats.accepted != ended

    # --- what lives

    def _config(self, ledger: Ledger) -> BatchQueueConfig[int]:
        pause = self._chance.choice((0.0, 0.0, 0.001, 0.005))

        async def consume(batch: list[int]) -> None:
            await asyncio.sleep(pause)
            if self._chance.random() < 0.02:
                raise OSError
            ledger.handled.update(batch)

        return BatchQueueConfig[int](
            consumer=consume,
            max_batch=self._chance.choice((1, 7, None)),
            linger=self._chance.choice((0.0, 0.01)),
            retry=Retry(attempts=self._chance.choice((1, 2)), wait_initial=0.001),
            on_error=lambda batch, _: ledger.told.update(batch),
            shutdown_timeout=self._chance.choice((0.0, 0.01, 30.0, None)),
        )

    async def _queue(self, ledger: Ledger, queues: list[BatchQueue[int]]) -> None:
        async with BatchQueue("soaked end", self._config(ledger)) as queue:
            queues.append(queue)
            await self._produce(ledger, queue)

    async def _manager(self, ledger: Ledger, queues: list[BatchQueue[int]]) -> None:
        """Two in a chain: what one handles the other is given."""
        timeout = self._chance.choice((1.0, 30.0, None))
        async with BatchQueueManager(shutdown_timeout=timeout) as manager:
            last = await manager.create("soaked last", self._config(ledger))

            async def pass_on(batch: list[int]) -> None:
                await last.produce_many(batch)

            first = await manager.create(
                "soaked first",
                BatchQueueConfig[int](
                    consumer=pass_on,
                    max_batch=5,
                    on_error=lambda batch, _: ledger.told.update(batch),
                ),
            )
            queues += (first, last)
            await self._produce(ledger, first)

    async def _produce(self, ledger: Ledger, queue: BatchQueue[int]) -> None:
        for _ in range(self._chance.randrange(200)):
            if queue.produce_nowait(ledger.accepted):
                ledger.accepted += 1
        await asyncio.sleep(self._chance.choice((0, 0.001, 10.0)))

    async def _forget(self, ledger: Ledger, queues: list[BatchQueue[int]]) -> None:
        queue = BatchQueue("soaked and forgotten", self._config(ledger))
        queues.append(queue)
        await queue.start()
        for _ in range(self._chance.randrange(200)):
            ledger.accepted += queue.produce_nowait(ledger.accepted)
        await asyncio.sleep(self._chance.choice((0, 0.001, 0.02)))

    async def _cancel_all(self, ledger: Ledger, queues: list[BatchQueue[int]]) -> None:
        """All tasks of the loop are cancelled; it lives on, and then ends."""
        await self._forget(ledger, queues)
        for _ in range(self._chance.choice((1, 2))):
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(self._chance.choice((0, 0.01, 0.1)))
        for _ in range(self._chance.randrange(20)):
            ledger.accepted += queues[0].produce_nowait(ledger.accepted)
        if self._chance.random() < 0.5:
            await queues[0].close()

    # --- how it is left

    async def _timeout(self, live: Live) -> None:
        with anyio.move_on_after(self._chance.random() * 0.01):
            await live()

    async def _nested(self, live: Live) -> None:
        with (
            contextlib.suppress(TimeoutError),
            anyio.fail_after(self._chance.random() * 0.02),
            anyio.move_on_after(self._chance.random() * 0.02),
            anyio.CancelScope(),
        ):
            await live()

    async def _cancelled_before(self, live: Live) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await live()

    async def _sibling(self, live: Live) -> None:
        async def fail() -> None:
            await asyncio.sleep(self._chance.random() * 0.01)
            raise KeyError

        with contextlib.suppress(ExceptionGroup):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(live)
                tasks.start_soon(fail)

    async def _native(self, live: Live) -> None:
        """Cancelled once or twice, as by Ctrl-C."""
        living = asyncio.ensure_future(live())
        for _ in range(self._chance.choice((1, 2))):
            await asyncio.sleep(self._chance.random() * 0.005)
            living.cancel()
        await asyncio.wait({living})
