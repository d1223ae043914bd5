"""Who works on the queues of the soak: threads, tasks, and who disturbs them."""

import asyncio
import contextlib
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from itertools import count

from batchqueue_async import DeliveryError, SyncBatchQueue, WhenFull
from tests.stress.soak_queues import KINDS, Soaked
from tests.stress.tally import Item

DROP_OLDEST = WhenFull.DROP_OLDEST
PATIENCE = 30.0
"""Nothing takes so long, unless it was lost."""


class Source:
    """One producer's items, numbered by kind."""

    def __init__(self, soaked: Soaked, name: str, chance: random.Random) -> None:
        self._soaked = soaked
        self._name = name
        self._chance = chance
        self._numbers: defaultdict[int, Iterator[int]] = defaultdict(count)

    def items(self, most: int) -> list[Item]:
        kind = self._chance.randrange(len(self._soaked.kinds))
        numbers = self._numbers[kind]
        return [
            KINDS[kind](self._name, kind, next(numbers))
            for _ in range(self._chance.randint(1, most))
        ]


def thread_producer(
    soaked: Soaked,
    bridge: SyncBatchQueue[Item],
    name: str,
    stop: threading.Event,
    seed: int,
) -> None:
    """Produce through the bridge until the end; flush now and then."""
    chance = random.Random(seed)
    source = Source(soaked, name, chance)
    while not stop.wait(chance.random() * 0.01):
        items = source.items(12)
        timeout = chance.choice([None, 0.5, 0.01])
        if chance.random() < 0.5:
            placed = int(bridge.produce(items[0], timeout))
        else:
            placed = bridge.produce_many(items, timeout)
        soaked.tally.accepted(items[:placed])
        if chance.random() < 0.002:
            with contextlib.suppress(DeliveryError):
                bridge.flush(PATIENCE)


async def producer(
    soaked: Soaked, chance: random.Random, stop: threading.Event
) -> None:
    """Produce on the loop."""
    source = Source(soaked, "task", chance)
    while not stop.is_set():
        items = source.items(30)
        if chance.random() < 0.3:
            placed = int(soaked.queue.produce_nowait(items[0]))
        elif chance.random() < 0.5:
            placed = int(await soaked.queue.produce(items[0]))
        else:
            placed = await soaked.queue.produce_many(items)
        soaked.tally.accepted(items[:placed])
        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.01]))


async def cancelled_producer(
    soaked: Soaked, chance: random.Random, stop: threading.Event
) -> None:
    """Produce, and be cancelled while waiting."""
    source = Source(soaked, "cancelled task", chance)
    while not stop.is_set():
        items = source.items(40)
        call = asyncio.ensure_future(soaked.queue.produce_many(items))
        await asyncio.wait({call}, timeout=chance.random() * 0.01)
        call.cancel()
        await asyncio.wait({call})
        if call.cancelled():
            soaked.tally.perhaps_accepted(items)
        else:
            soaked.tally.accepted(items[: call.result()])
        await asyncio.sleep(0.005)


async def flusher(soaked: Soaked, chance: random.Random, stop: threading.Event) -> None:
    """Flush, sometimes without the patience to see it end."""
    while not stop.is_set():
        await asyncio.sleep(chance.random())
        with contextlib.suppress(DeliveryError):
            if chance.random() < 0.5:
                await soaked.queue.flush(PATIENCE)
            else:
                with contextlib.suppress(TimeoutError):
                    await soaked.queue.flush(0.01)


async def replacer(
    soaked: Soaked, chance: random.Random, stop: threading.Event
) -> None:
    """Replace and remove handlers in full flight."""
    if not soaked.has_handlers or soaked.queue.config.when_full is DROP_OLDEST:
        return  # the tally tells displaced items by their handler's order
    while not stop.is_set():
        await asyncio.sleep(chance.random())
        if not soaked.queue.is_running:
            return
        if chance.random() < 0.3:
            soaked.remove_handler(chance.choice(soaked.kinds))
        else:
            soaked.add_handler(chance.choice(soaked.kinds))
