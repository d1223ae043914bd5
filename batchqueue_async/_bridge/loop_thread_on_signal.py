"""The signal handler that drains every `LoopThread` registered for a signal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Protocol

from batchqueue_async._bridge import at_exit
from batchqueue_async._engine.drain_on_signals import ECHO


class BeginDraining(Protocol):
    """Begins to drain one `LoopThread`, or hurries it; never raises."""

    def __call__(
        self, timeout: float | None, then: Callable[[], object] | None = None
    ) -> None:
        """Begin; `then` is called when all is drained, on any thread."""


class DrainOnSignal:
    """The handler of some signals: drains a `LoopThread`, and ends the program.

    Then those of the handlers of its kind that it has replaced, one after the other.
    """

    def __init__(
        self,
        owner: object,
        begin: BeginDraining,
        is_over: Callable[[], bool],
        timeout: float | None,
    ) -> None:
        self.owner = owner
        self.begin = begin
        self.is_over = is_over
        self._timeout = timeout
        self._began: float | None = None
        # By signal: the handler that was there before, which drains after this one.
        self.next: dict[signal.Signals, DrainOnSignal] = {}

    def install(self, each: signal.Signals) -> None:
        before = signal.getsignal(each)
        # For one `LoopThread` the last call counts. Ended ones are forgotten: a program
        # may start one after the other.
        while isinstance(before, DrainOnSignal) and before.is_done_for(self.owner):
            before = before.next.get(each)
        if isinstance(before, DrainOnSignal):
            self.next[each] = before
        signal.signal(each, self)

    def is_done_for(self, owner: object) -> bool:
        """Whether this handler is not needed once there is one for `owner`."""
        return self.owner is owner or self.is_over()

    def __call__(self, number: int, _: FrameType | None) -> None:
        received, now = signal.Signals(number), time.monotonic()
        is_first = self._began is None
        if self._began is None:
            self._began = now
            self.drain(received)
        elif now - self._began >= ECHO:
            self._hurry(received)
        # At the interpreter's exit nobody would catch it: the exit code is settled.
        if is_first and not at_exit.is_exiting():
            raise SystemExit(128 + number)

    def drain(self, received: signal.Signals) -> None:
        after = self.next.get(received)
        then = None if after is None else partial(after.drain, received)
        self.begin(self._timeout, then)

    def _hurry(self, received: signal.Signals) -> None:
        # Also those whose draining has not begun yet: none gets more time.
        each: DrainOnSignal | None = self
        while each is not None:
            each.begin(0.0)
            each = each.next.get(received)
