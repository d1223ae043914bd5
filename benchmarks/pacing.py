"""Produces at a steady rate, on the loop or on a thread; items are their own times."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

Send = Callable[[float], object]

# For more than a thousand per second sleeps are too coarse: items come in bursts.
_TICK = 0.001


async def produce_on_loop(
    put: Callable[[float], Awaitable[object]], rate: float, seconds: float
) -> int:
    """Produce the current time, so often per second; return how many there were."""
    started, sent = time.perf_counter(), 0
    total = max(1, round(rate * seconds))
    while sent < total:
        due = math.ceil((time.perf_counter() - started) * rate)
        for _ in range(sent, min(total, due)):
            await put(time.perf_counter())
            sent += 1
        await asyncio.sleep(max(_TICK, started + sent / rate - time.perf_counter()))
    return sent


def produce_on_thread(put: Send, rate: float, seconds: float) -> int:
    """Do the same on a thread."""
    started, sent = time.perf_counter(), 0
    total = max(1, round(rate * seconds))
    while sent < total:
        due = math.ceil((time.perf_counter() - started) * rate)
        for _ in range(sent, min(total, due)):
            put(time.perf_counter())
            sent += 1
        time.sleep(max(_TICK, started + sent / rate - time.perf_counter()))
    return sent
