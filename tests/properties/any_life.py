"""A queue's life with settings of any kind, and an end of any kind, by a seed."""

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio

from batchqueue_async import BatchQueue, BatchQueueError, DeliveryError, PartialFailure
from tests.properties.any_settings import KINDS, AnySettings, Item
from tests.support.oracle import check_accounts, check_settled

PATIENCE = 60.0
"""Virtual seconds: whoever takes longer waits for ever."""

ENDS = (
    "left",
    "left by an error",
    "left by a scope",
    "shut down",
    "shut down by a deadline",
    "loop ended",
    "all cancelled",
    "interrupted",
)
DRAINED = {"left", "left by an error", "left by a scope", "shut down"}


class HandlerFailed(Exception):
    pass


class BlockFailed(Exception):
    pass


class AnyLife:
    """What producers are told, against what handlers see and what the queue counts."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.drawn = AnySettings.of(self.chance)
        self.end = self.chance.choice(ENDS)
        self.violations: list[str] = []
        self.accepted: set[Item] = set()
        self.accepted_in_part = 0
        self.returned: set[Item] = set()
        self._called: Counter[Item] = Counter()
        self._handled: Counter[Item] = Counter()
        self._failed: Counter[Item] = Counter()
        self._numbers: Counter[int] = Counter()
        self._last: defaultdict[tuple[type, int], int] = defaultdict(lambda: -1)
        self._inside: Counter[str] = Counter()
        self._others: list[asyncio.Task[None]] = []
        self._producers: list[asyncio.Task[None]] = []
        has_consumer = self.chance.random() < 0.4
        consumer = {"consumer": self._handler("consumer")} if has_consumer else {}
        self._has_consumer = has_consumer
        self.config = self.drawn.config(on_error=self._be_told, **consumer)
        self.queue = BatchQueue("q", self.config)

    async def live(self) -> None:
        """Live to the end, but for what is checked when the loop has gone."""
        async with asyncio.timeout(PATIENCE):
            match self.end:
                case "left":
                    async with self.queue:
                        await self._work()
                case "left by an error":
                    with contextlib.suppress(BlockFailed):
                        async with self.queue:
                            await self._work()
                            raise BlockFailed
                case "left by a scope":
                    with anyio.move_on_after(0.02):
                        async with self.queue:
                            await self._work()
                case "shut down" | "shut down by a deadline":
                    await self.queue.start()
                    await self._work()
                    deadline = self.chance.choice([0.0, 0.003, 0.02])
                    in_time = None if self.end in DRAINED else deadline
                    self.returned |= {*await self.queue.shutdown(in_time)}
                case "loop ended":
                    await self.queue.start()
                    await self._work()
                    return
                case _:
                    self._strike_later()
                    async with self.queue:
                        await self._work()
                        await asyncio.sleep(0.1)
            await self._see_producers_end()

    def check(self) -> None:
        """Compare the books."""
        stats = check_settled(self.queue)
        told = len(self.accepted) + self.accepted_in_part
        self._demand(stats.accepted == told, f"A1: {stats.accepted}, told {told}")
        lost = 0
        for item in {*self._called, *self.accepted, *self.returned}:
            ends = (self._handled, self._failed, Counter(self.returned))
            count = sum(end[item] for end in ends)
            lost += item in self.accepted and not count
            once = count <= 1 or self._may_come_again
            self._demand(once, f"{item} ended {count} times")
            again = self._called[item] <= 1 or self._has_retries
            self._demand(again, f"{item} delivered {self._called[item]} times")
        # These are counted without their names; an `on_error` may be cut off, too.
        unnamed = stats.dropped + stats.unhandled
        if self.end not in DRAINED:
            unnamed += stats.returned + stats.failed
        self._demand(lost <= unnamed, f"{lost} without an end, {unnamed} counted")
        if self.end in DRAINED:
            self._demand(stats.returned == 0, f"{stats.returned} returned")
        assert self.violations == []

    @property
    def _has_retries(self) -> bool:
        retry = self.config.retry
        return retry.attempts > 1 or retry.split

    @property
    def _may_come_again(self) -> bool:
        """An attempt that has done its work may be cut off before it says so."""
        return self._has_retries and self.config.handler_timeout is not None

    def _demand(self, holds: object, message: str) -> None:
        # An exception here would be a failed batch, no more.
        if not holds:
            self.violations.append(message)

    def _be_told(self, batch: list[Item], error: BaseException) -> None:
        self._failed.update(batch)

    def _handler(self, name: str, kind: type[Item] | None = None) -> Any:  # noqa: ANN401
        chance = self.chance
        faults = chance.choice([0.0, 0.1, 0.3])

        def finish(batch: list[Item]) -> None:
            match chance.random() / (faults or 1e-9):
                case lot if lot < 0.5:
                    raise HandlerFailed
                case lot if lot < 0.9:
                    bad = {n for n in range(len(batch)) if chance.random() < 0.4}
                    good = (item for n, item in enumerate(batch) if n not in bad)
                    self._handled.update(good)
                    raise PartialFailure(bad)
                case lot if lot < 1.0:
                    raise asyncio.CancelledError
            self._handled.update(batch)

        async def consume(batch: list[Item]) -> None:
            with self._inside_of(name, kind, batch):
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(chance.choice([0.0, 0.0, 0.001, 0.003]))
                finish(batch)

        def consume_at_once(batch: list[Item]) -> None:
            with self._inside_of(name, kind, batch):
                finish(batch)

        return chance.choice([consume, consume_at_once, _Hooked(consume, chance)])

    @contextlib.contextmanager
    def _inside_of(
        self, name: str, kind: type[Item] | None, batch: list[Item]
    ) -> Iterator[None]:
        alone = not self._inside[name] or not self._is_exclusive(name)
        self._demand(alone, f"B3: {name} entered twice")
        self._demand(batch, "C2: an empty batch")
        self._inside[name] += 1
        bound, most = self.config.max_batch_bytes, self.config.max_batch
        if isinstance(most, int):
            self._demand(len(batch) <= most, f"a batch of {len(batch)}")
        if bound is not None and len(batch) > 1:
            size = sum(item.size for item in batch)
            self._demand(size <= bound, f"C5: a batch of {size}")
        for item in batch:
            self._demand(kind in {None, type(item)}, f"{name} got {item}")
            self._see_order_of(item)
        try:
            yield
        finally:
            self._inside[name] -= 1

    def _is_exclusive(self, name: str) -> bool:
        return name != "consumer" and self.drawn.has_one_partition_each

    def _see_order_of(self, item: Item) -> None:
        self._called[item] += 1
        stream = type(item), item.producer
        if self._called[item] == 1 and self.drawn.keeps_order:
            late = item.number < self._last[stream]
            self._demand(not late, f"B1: {item} after {self._last[stream]}")
            self._last[stream] = max(item.number, self._last[stream])

    async def _work(self) -> None:
        if not self._has_consumer:
            for kind in KINDS[: self.chance.randrange(1, 4)]:
                self._add_handler(kind)
        count = self.chance.randrange(1, 6)
        start = asyncio.create_task
        self._producers += [start(self._produce(number)) for number in range(count)]
        self._others += [start(self._look()), start(self._flush())]
        if not self._has_consumer:
            self._others.append(start(self._meddle()))
        for task in self._producers:
            if self.chance.random() < 0.2:
                await asyncio.sleep(self.chance.choice([0.0, 0.001, 0.004]))
                task.cancel()
        if self.chance.random() < 0.6:
            await asyncio.wait(self._producers)
        await self._stop_others()

    def _add_handler(self, kind: type[Item]) -> None:
        name = f"{kind.__name__} {len(self._inside)}"
        self._inside[name] = 0
        weight = self.chance.choice([0.5, 1.0, 3.0])
        self.queue.add_handler(kind, self._handler(name, kind), weight)

    def _new(self, producer: int) -> Item:
        self._numbers[producer] += 1
        return self.chance.choice(KINDS)(producer, self._numbers[producer])

    async def _produce(self, producer: int) -> None:
        for _ in range(self.chance.randrange(1, 12)):
            await asyncio.sleep(self.chance.choice([0.0, 0.0, 0.001, 0.01]))
            verb = self.chance.choice(["produce", "nowait", "offer", "many", "many"])
            if verb == "many":
                await self._produce_many(producer)
                continue
            item = self._new(producer)
            if verb == "produce":
                is_in = await self.queue.produce(item)
            elif verb == "nowait":
                is_in = self.queue.produce_nowait(item)
            else:
                is_in = bool(self.queue.offer(item))
            if is_in:
                self.accepted.add(item)

    async def _produce_many(self, producer: int) -> None:
        items = [self._new(producer) for _ in range(self.chance.randrange(15))]
        given = items if self.chance.random() < 0.6 else iter(items)
        try:
            count = await self.queue.produce_many(given)
        except BaseException as error:
            self.accepted_in_part += getattr(error, "accepted", 0)
            raise
        if count == len(items):
            self.accepted.update(items)
        else:
            self.accepted_in_part += count

    async def _look(self) -> None:
        while True:
            stats = check_accounts(self.queue)
            for partition in stats.partitions:
                bound = partition.waiting <= self.config.buffer_size
                is_fair = self.drawn.selector in {"fair_by", "weighed"}
                self._demand(bound or is_fair, f"C1: {partition.waiting}")
            await asyncio.sleep(self.chance.choice([0.0, 0.001, 0.005]))

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(self.chance.choice([0.001, 0.01, 0.05]))
            before = {*self.accepted}
            try:
                await self.queue.flush(self.chance.choice([None, 0.005, 5.0]))
            except TimeoutError:
                continue
            except DeliveryError:
                pass
            left = before - {*self._handled} - {*self._failed}
            stats = self.queue.stats()
            unnamed = stats.dropped + stats.unhandled + stats.returned
            self._demand(len(left) <= unnamed, f"F5: {len(left)} flushed, not settled")

    async def _meddle(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(self.chance.choice([0.0, 0.002, 0.01]))
            kind = self.chance.choice(KINDS)
            with contextlib.suppress(BatchQueueError):  # it is shut down by now
                if self.chance.random() < 0.5:
                    self._add_handler(kind)
                else:
                    self.queue.remove_handler(kind)

    async def _stop_others(self) -> None:
        for task in self._others:
            task.cancel()
        for result in await asyncio.gather(*self._others, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _see_producers_end(self) -> None:
        """No producer waits for a queue that is closed."""
        await self._stop_others()
        if self._producers:
            async with asyncio.timeout(10.0):
                await asyncio.wait(self._producers)
        for task in self._producers:
            if not task.cancelled():
                task.result()

    def _strike_later(self) -> None:
        def cancel_all() -> None:
            for task in asyncio.all_tasks():
                task.cancel()

        def interrupt() -> None:
            raise KeyboardInterrupt

        strike = cancel_all if self.end == "all cancelled" else interrupt
        when = self.chance.choice([0.001, 0.004, 0.01, 0.05])
        asyncio.get_running_loop().call_later(when, strike)


class _Hooked:
    """A handler with each hook."""

    tick_every = 0.004

    def __init__(
        self, consume: Callable[[list[Item]], Awaitable[None]], chance: random.Random
    ) -> None:
        self.consume = consume
        self._chance = chance

    async def on_open(self) -> None:
        await asyncio.sleep(0)

    async def on_idle(self) -> None:
        if self._chance.random() < 0.1:
            raise HandlerFailed

    def on_tick(self) -> None: ...

    async def on_flush(self) -> None:
        await asyncio.sleep(0)

    async def on_close(self) -> None:
        await asyncio.sleep(0.001)
