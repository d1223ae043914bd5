"""What each wait strategy costs: how late an event is, and how much CPU an idle ring.

python -m benchmarks.ring --waits
"""

import asyncio
import importlib.util
import statistics
import time
from collections.abc import Callable

from batchqueue_async.ring import (
    BlockingWait,
    BusySpinWait,
    Disruptor,
    SleepingWait,
    TimeoutBlockingWait,
    WaitStrategy,
    YieldingWait,
)

EVENTS = 200
PAUSE = 0.005
IDLE = 0.5
STRATEGIES: list[WaitStrategy] = [
    BlockingWait(),
    TimeoutBlockingWait(1.0),
    SleepingWait(),
    SleepingWait(sleep=0.001),
    YieldingWait(),
    BusySpinWait(),
]


class Stamp:
    """When an event was published."""

    __slots__ = ("published",)

    def __init__(self) -> None:
        self.published = 0.0


def stamp(event: Stamp, sequence: int) -> None:
    """Note the time of publication."""
    event.published = time.perf_counter()


async def latency(wait: WaitStrategy) -> list[float]:
    """Return the microseconds from each publication to its handler, after pauses."""
    late: list[float] = []

    def on_event(event: Stamp, sequence: int, end_of_batch: bool) -> None:
        late.append((time.perf_counter() - event.published) * 1e6)

    disruptor = Disruptor(Stamp, 64, wait=wait)
    disruptor.handle_events_with(on_event)
    async with disruptor as ring:
        for _ in range(EVENTS):
            await asyncio.sleep(PAUSE)
            await ring.publish_event(stamp)
    return late


async def idle_cpu(wait: WaitStrategy) -> float:
    """Return the share of a core that one idle consumer takes."""
    disruptor = Disruptor(Stamp, 64, wait=wait)
    disruptor.handle_events_with(lambda *_: None)
    async with disruptor:
        await asyncio.sleep(0.01)
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(IDLE)
        return (time.process_time() - cpu) / (time.perf_counter() - wall)


async def naps(seconds: float) -> list[float]:
    """Return how many microseconds `asyncio.sleep(seconds)` really takes."""
    taken = []
    for _ in range(200):
        started = time.perf_counter()
        await asyncio.sleep(seconds)
        taken.append((time.perf_counter() - started) * 1e6)
    return taken


def _report(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        print(f"{'':42}  median us late   99 % us late   idle CPU")
        for wait in STRATEGIES:
            late = runner.run(latency(wait))
            cpu = runner.run(idle_cpu(wait))
            most = statistics.quantiles(late, n=100)[98]
            median = statistics.median(late)
            print(f"{wait!r:42}  {median:14.0f}  {most:13.0f}  {cpu:9.1%}")
        print("asyncio.sleep(seconds) really takes, in us (median, 99 %):")
        for seconds in (100e-9, 1e-6, 10e-6, 100e-6, 1e-3, 2e-3):
            taken = runner.run(naps(seconds))
            most = statistics.quantiles(taken, n=100)[98]
            print(f"{seconds:10.0e}  {statistics.median(taken):8.0f}  {most:8.0f}")


def main() -> None:
    """Print both tables for each loop that there is."""
    print("\nasyncio's loop")
    _report(asyncio.new_event_loop)
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop  # noqa: PLC0415  # not to be had on Windows

        print("\nuvloop")
        _report(uvloop.new_event_loop)
