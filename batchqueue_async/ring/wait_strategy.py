"""How a consumer waits for its next event: what it costs, and how late it is.

On one loop nothing happens while a consumer spins: a spin that doesn't yield would wait
for ever. So each try of the strategies that poll is a turn of the loop. What each costs
in latency and CPU is measured in `docs/ring.md`.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final, Protocol

from batchqueue_async._validation import refuse

_SPINS: Final = 100


class Waiting(Protocol):
    """What a strategy may use of a consumer's barrier."""

    def available(self) -> int:
        """Return the highest sequence that the consumer may take."""

    def check_alert(self) -> None:
        """Raise `RingHalted` if the consumer is to stop."""

    async def sleep(self, sequence: int, timeout: float | None = None) -> None:
        """Sleep until the sequence is available, or something else is to be done."""


class WaitStrategy(Protocol):
    """How a consumer waits; one object may serve all consumers of a ring."""

    async def wait_for(self, sequence: int, barrier: Waiting) -> int:
        """Return the highest available sequence, once that is `sequence` or more.

        Raises:
            RingHalted: The barrier was alerted.
            TimeoutError: It took too long, for a strategy that has a limit.
        """


@dataclass(frozen=True, slots=True)
class BlockingWait:
    """Sleeps until an event is published: the default.

    Idle, it costs nothing. A publication into an empty ring wakes each consumer once,
    which takes a turn of the loop; while consumers are busy, publishers signal nobody.
    """

    async def wait_for(self, sequence: int, barrier: Waiting) -> int:
        """Sleep until `sequence` is available; see `WaitStrategy.wait_for`."""
        while (available := barrier.available()) < sequence:
            barrier.check_alert()
            await barrier.sleep(sequence)
        return available


@dataclass(frozen=True, slots=True)
class TimeoutBlockingWait:
    """Sleeps like `BlockingWait`, and calls `on_timeout` when nothing comes for long.

    Idle, it costs one timer per `timeout` and consumer.

    Args:
        timeout: Seconds without an event after which `on_timeout` is called.
    """

    timeout: float

    def __post_init__(self) -> None:
        _require_positive("timeout", self.timeout)

    async def wait_for(self, sequence: int, barrier: Waiting) -> int:
        """Sleep until `sequence` is available, for `timeout` seconds at most."""
        if (available := barrier.available()) < sequence:
            barrier.check_alert()
            await barrier.sleep(sequence, self.timeout)
            barrier.check_alert()
            if (available := barrier.available()) < sequence:
                raise TimeoutError
        return available


@dataclass(frozen=True, slots=True)
class BusySpinWait:
    """Looks in every turn of the loop; publishers never signal.

    An event is seen in the very turn after its publication. It takes a whole core for
    as long as the ring runs, and makes every turn of the loop longer for all others:
    for a loop that does nothing else.
    """

    async def wait_for(self, sequence: int, barrier: Waiting) -> int:
        """Look in every turn; see `WaitStrategy.wait_for`."""
        while (available := barrier.available()) < sequence:
            barrier.check_alert()
            await asyncio.sleep(0)
        return available


@dataclass(frozen=True, slots=True)
class YieldingWait:
    """Looks in 100 turns of the loop, then offers its core to other threads each time.

    As prompt as `BusySpinWait` while events keep coming. In a pause it still takes all
    the CPU that nobody else wants, but threads (producers, for one) get theirs.
    """

    async def wait_for(self, sequence: int, barrier: Waiting) -> int:
        """Look in every turn; see `WaitStrategy.wait_for`."""
        spins = _SPINS
        while (available := barrier.available()) < sequence:
            barrier.check_alert()
            if spins:
                spins -= 1
            else:
                _yield_to_threads()
            await asyncio.sleep(0)
        return available


@dataclass(frozen=True, slots=True)
class SleepingWait:
    """Spins, then yields, then sleeps between looks; publishers never signal.

    With the defaults it looks in 100 turns of the loop, in 100 more that offer the core
    to other threads, and after that whenever the loop's timer lets it. A loop's timers
    count milliseconds: much less, as the default, is no pause but one more turn, and
    takes a whole core; `sleep=0.001` takes a few per cent, and an event that comes
    after a pause is up to two milliseconds late (`docs/ring.md` has figures).

    Args:
        retries: Looks before the first sleep; the last 100 of them yield.
        sleep: Seconds between looks afterwards.
    """

    retries: int = 200
    sleep: float = 100e-9

    def __post_init__(self) -> None:
        if self.retries < 0:
            refuse("retries", ">= 0", self.retries)
        _require_positive("sleep", self.sleep)

    async def wait_for(self, sequence: int, barrier: Waiting) -> int:
        """Look now and then; see `WaitStrategy.wait_for`."""
        left = self.retries
        while (available := barrier.available()) < sequence:
            barrier.check_alert()
            if left == 0:
                await asyncio.sleep(self.sleep)
                continue
            if left <= _SPINS:
                _yield_to_threads()
            left -= 1
            await asyncio.sleep(0)
        return available


def _yield_to_threads() -> None:
    # Gives the interpreter's lock and the core away, and comes back at once.
    time.sleep(0)


def _require_positive(field: str, value: float) -> None:
    if not value > 0:
        refuse(field, "> 0", value)
