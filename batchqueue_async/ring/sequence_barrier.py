"""Barriers that consumers wait at, and strategies that trade latency for CPU.

On one loop nothing else runs while a consumer spins: a spin that doesn't yield would
wait for ever. So strategies that poll look once per turn of the loop. What each costs
in latency and CPU is measured in `docs/ring.md`.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from batchqueue_async._loop_time import Sleeper
from batchqueue_async._threads.clock import sleep
from batchqueue_async._validation import refuse

from .errors import RingError, RingHalted, RingPart, require_count, require_seconds
from .sequence import Notifier, Sequence, require_sequences

if TYPE_CHECKING:
    from .sequencer import MultiProducerSequencer

_SPINS: Final = 100


class SequenceBarrier(RingPart):
    """Tells one consumer how far it may go.

    That is as far as everything is published and, if it comes after other consumers, as
    far as the slowest of these has come. `RingBuffer.new_barrier` makes it.
    """

    def __init__(
        self,
        publications: MultiProducerSequencer,
        wait: WaitStrategy,
        dependencies: tuple[Sequence, ...] = (),
    ) -> None:
        self.is_alerted: bool = False
        self._publications = publications
        self._wait = wait
        self._dependencies = require_sequences(dependencies)
        self._sleepers: set[_Sleeper] = set()

    def is_of(self, publications: MultiProducerSequencer) -> bool:
        """Whether it waits for what is published there, and not in another ring."""
        return self._publications is publications

    def available(self) -> int:
        """Return the highest sequence that may be taken."""
        if not self._dependencies:
            return self._publications.published
        return min([each.value for each in self._dependencies])

    async def wait_for(self, sequence: int) -> int:
        """Return the highest available sequence, once that is `sequence` or more.

        How it waits is the wait strategy's choice. Cancelled, it leaves nothing behind.

        Raises:
            RingHalted: The barrier is alerted, or was during the wait.
            TimeoutError: With `TimeoutBlockingWait`, after its timeout.
        """
        self.check_alert()
        available = self.available()
        if available >= sequence:
            return available
        return await self._wait.wait_for(sequence, self)

    def alert(self) -> None:
        """Make every wait end with `RingHalted`, until `clear_alert`."""
        self.is_alerted = True
        self.wake()

    def wake(self) -> None:
        """End the sleep of all who wait: they look again."""
        for sleeper in list(self._sleepers):
            sleeper.wake()

    def leave_to_parent(self) -> None:
        """Wake nobody who waits, in a forked child: those are the parent's."""
        self._sleepers.clear()

    def clear_alert(self) -> None:
        """End the alert: consumers may wait again."""
        self.is_alerted = False

    def call_back_again(self) -> None:
        """Have sleepers run on whose wake-up, or the call after it, was cut off."""
        for sleeper in list(self._sleepers):
            sleeper.wake_again()

    def check_alert(self) -> None:
        """Raise `RingHalted` if the barrier is alerted."""
        if self.is_alerted:
            msg = "the consumer was told to stop"
            raise RingHalted(msg)

    def behind(self, sequence: int) -> Notifier | None:
        """Return a source that has not reached `sequence` yet; None if all have."""
        if not self._dependencies:
            source = self._publications
            return source if source.published < sequence else None
        for each in self._dependencies:
            if each.value < sequence:
                return each
        return None

    def before(self, sequence: int) -> list[Sequence]:
        """Return the sequences of consumers that have not reached `sequence` yet."""
        return [each for each in self._dependencies if each.value < sequence]

    async def sleep(self, sequence: int, timeout: float | None = None) -> None:
        """Sleep until `sequence` is available, or an alert, or `timeout` seconds."""
        sleeper = _Sleeper(self, sequence)
        self._sleepers.add(sleeper)
        timer = None
        if timeout is not None:
            timer = asyncio.get_running_loop().call_later(timeout, sleeper.wake)
        try:
            sleeper.recheck()
            await sleeper.signal
        finally:
            self._sleepers.discard(sleeper)
            sleeper.leave()
            if timer is not None:
                timer.cancel()


class _Sleeper:
    """One wait: moves from one source that is behind to the next, then wakes once."""

    __slots__ = ("_at", "_barrier", "_loop", "_sequence", "signal")

    def __init__(self, barrier: SequenceBarrier, sequence: int) -> None:
        self._barrier = barrier
        self._sequence = sequence
        self._loop = asyncio.get_running_loop()
        self._at: Notifier | None = None
        self.signal = Sleeper(self._loop)

    def recheck(self) -> None:
        self._at = self._barrier.behind(self._sequence)
        if self._at is None:
            self.wake()
        else:
            self._at.add_waiter(self.recheck)

    def wake(self) -> None:
        if asyncio._get_running_loop() is not self._loop:  # noqa: SLF001
            self._refuse_foreign_thread()
        self.signal.wake()

    def wake_again(self) -> None:
        if self._barrier.behind(self._sequence) is None:
            self.wake()
        self.signal.call_back_again()

    def leave(self) -> None:
        if self._at is not None:
            self._at.remove_waiter(self.recheck)

    def _refuse_foreign_thread(self) -> None:
        self._loop.call_soon_threadsafe(self.wake)
        msg = "the ring belongs to another loop: publish from threads with SyncRing"
        raise RingError(msg)


class WaitStrategy(Protocol):
    """How a consumer waits; one object may serve all consumers of a ring."""

    async def wait_for(self, sequence: int, barrier: SequenceBarrier) -> int:
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

    async def wait_for(self, sequence: int, barrier: SequenceBarrier) -> int:
        """Sleep until `sequence` is available; see `WaitStrategy.wait_for`."""
        while (available := barrier.available()) < sequence:
            barrier.check_alert()
            await barrier.sleep(sequence)
        return available


def strategy_of(wait: WaitStrategy | None) -> WaitStrategy:
    """Return it, or the default; refuse what is none, and a strategy's class."""
    if wait is None:
        return BlockingWait()
    if isinstance(wait, type) or not hasattr(wait, "wait_for"):
        refuse("wait", "a wait strategy, as in BlockingWait()", wait, TypeError)
    return wait


@dataclass(frozen=True, slots=True)
class TimeoutBlockingWait:
    """Sleeps like `BlockingWait`, and calls `on_timeout` when nothing comes for long.

    Idle, it costs one timer per `timeout` and consumer.

    Args:
        timeout: Seconds without an event after which `on_timeout` is called.
    """

    timeout: float

    def __post_init__(self) -> None:
        require_seconds("timeout", self.timeout, may_be_zero=False)

    async def wait_for(self, sequence: int, barrier: SequenceBarrier) -> int:
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

    async def wait_for(self, sequence: int, barrier: SequenceBarrier) -> int:
        """Look in every turn; see `WaitStrategy.wait_for`."""
        return await _poll(sequence, barrier, inf, inf)


@dataclass(frozen=True, slots=True)
class YieldingWait:
    """Looks in 100 turns of the loop, then offers its core to other threads each time.

    As prompt as `BusySpinWait` while events keep coming. In a pause it still takes all
    the CPU that nobody else wants, but threads (producers, for one) get theirs.
    """

    async def wait_for(self, sequence: int, barrier: SequenceBarrier) -> int:
        """Look in every turn; see `WaitStrategy.wait_for`."""
        return await _poll(sequence, barrier, _SPINS, inf)


@dataclass(frozen=True, slots=True)
class SleepingWait:
    """Spins, then yields, then sleeps between looks; publishers never signal.

    With the defaults it looks in 100 turns of the loop, in 100 more that offer the core
    to other threads, and after that whenever the loop's timer lets it. A loop's timers
    count milliseconds: a much shorter `sleep`, as by default, is just one more turn,
    and takes a whole core; `sleep=0.001` takes a few per cent, and an event that comes
    after a pause is up to two milliseconds late (`docs/ring.md` has figures).

    Args:
        retries: Looks before the first sleep; the last 100 of them yield.
        sleep: Seconds between looks afterwards.
    """

    retries: int = 200
    sleep: float = 100e-9

    def __post_init__(self) -> None:
        require_count("retries", self.retries, 0, ">= 0")
        require_seconds("sleep", self.sleep, may_be_zero=False)

    async def wait_for(self, sequence: int, barrier: SequenceBarrier) -> int:
        """Look now and then; see `WaitStrategy.wait_for`."""
        spins = self.retries - _SPINS
        return await _poll(sequence, barrier, spins, self.retries, self.sleep)


async def _poll(
    sequence: int,
    barrier: SequenceBarrier,
    spins: float,
    looks: float,
    pause: float = 0.0,
) -> int:
    """Look in `looks` turns, yielding the core after `spins`; then `pause` between."""
    looked = 0
    while (available := barrier.available()) < sequence:
        barrier.check_alert()
        if looked >= looks:
            await sleep(pause)
            continue
        if looked >= spins:
            # Gives the interpreter's lock and the core away, and comes back at once.
            time.sleep(0)  # noqa: ASYNC251
        looked += 1
        await sleep(0)
    return available
