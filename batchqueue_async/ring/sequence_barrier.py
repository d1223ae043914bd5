"""What a consumer waits at: publications, and the consumers before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .errors import RingError, RingHalted
from .sequence import Notifier, Sequence
from .wait_strategy import WaitStrategy

if TYPE_CHECKING:
    from .sequencer import Sequencer


class SequenceBarrier:
    """Tells one consumer how far it may go.

    That is as far as everything is published and, if it comes after other consumers, as
    far as the slowest of these has come. `RingBuffer.new_barrier` makes it.
    """

    __slots__ = (
        "__weakref__",
        "_dependencies",
        "_publications",
        "_sleepers",
        "_wait",
        "is_alerted",
    )

    def __init__(
        self,
        publications: Sequencer,
        wait: WaitStrategy,
        dependencies: tuple[Sequence, ...] = (),
    ) -> None:
        self.is_alerted: bool = False
        self._publications = publications
        self._wait = wait
        self._dependencies = dependencies
        self._sleepers: set[_Sleeper] = set()

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
        for sleeper in list(self._sleepers):
            sleeper.wake()

    def clear_alert(self) -> None:
        """Let waits be waits again."""
        self.is_alerted = False

    def check_alert(self) -> None:
        """Raise `RingHalted` if the barrier is alerted."""
        if self.is_alerted:
            msg = "the consumer was told to stop"
            raise RingHalted(msg)

    def behind(self, sequence: int) -> Notifier | None:
        """Return something that has not come as far as `sequence`; None if all has."""
        if not self._dependencies:
            source = self._publications
            return source if source.published < sequence else None
        for each in self._dependencies:
            if each.value < sequence:
                return each
        return None

    def before(self, sequence: int) -> list[Sequence]:
        """Return the consumers that have to come as far as `sequence` yet."""
        return [each for each in self._dependencies if each.value < sequence]

    async def sleep(self, sequence: int, timeout: float | None = None) -> None:
        """Sleep until `sequence` is available, or an alert, or `timeout` seconds."""
        sleeper = _Sleeper(self, sequence)
        self._sleepers.add(sleeper)
        timer = None if timeout is None else sleeper.wake_after(timeout)
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
        self.signal: asyncio.Future[None] = self._loop.create_future()

    def recheck(self) -> None:
        self._at = self._barrier.behind(self._sequence)
        if self._at is None:
            self.wake()
        else:
            self._at.add_waiter(self)

    def wake(self) -> None:
        if asyncio._get_running_loop() is not self._loop:  # noqa: SLF001
            self._refuse_foreign_thread()
        if not self.signal.done():
            self.signal.set_result(None)

    def wake_after(self, seconds: float) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, self.wake)

    def leave(self) -> None:
        if self._at is not None:
            self._at.remove_waiter(self)

    def _refuse_foreign_thread(self) -> None:
        self._loop.call_soon_threadsafe(self.wake)
        msg = "the ring belongs to another loop: publish from threads with SyncRing"
        raise RingError(msg)
