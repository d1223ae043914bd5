"""The signal handler that drains every `LoopThread` registered for a signal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from batchqueue_async._bridge import at_exit
from batchqueue_async._engine.drain_on_signals import ECHO
from batchqueue_async._policies.errors import BatchQueueError

if TYPE_CHECKING:
    from batchqueue_async._bridge.loop_thread import LoopThread


class DrainOnSignal:
    """The handler of some signals: drains a `LoopThread`, and ends the program.

    Then those of the handlers of its kind that it has replaced, one after the other.
    """

    def __init__(self, loop_thread: LoopThread, timeout: float | None) -> None:
        self.loop_thread = loop_thread
        self._timeout = timeout
        self._began: float | None = None
        # By signal: the handler that was there before, which drains after this one.
        self.next: dict[signal.Signals, DrainOnSignal] = {}

    def install(self, each: signal.Signals) -> None:
        before = signal.getsignal(each)
        # For one `LoopThread` the last call counts. Ended ones are forgotten: a program
        # may start one after the other.
        while isinstance(before, DrainOnSignal) and before.is_done_for(
            self.loop_thread
        ):
            before = before.next.get(each)
        if isinstance(before, DrainOnSignal):
            self.next[each] = before
        signal.signal(each, self)

    def is_done_for(self, loop_thread: LoopThread) -> bool:
        """Whether this handler is not needed once there is one for `loop_thread`."""
        own = self.loop_thread
        is_over = own._run is None and own._end is not None  # noqa: SLF001
        return is_over or own is loop_thread

    def __call__(self, number: int, _: FrameType | None) -> None:
        received, now = signal.Signals(number), time.monotonic()
        is_first = self._began is None
        if self._began is None:
            self._began = now
            self.drain(received)
        elif now - self._began >= ECHO:
            if self._is_over(received):
                # What is waited for is none of ours: a `finally` block, or a thread
                # that reads, for which also the interpreter's exit waits.
                raise SystemExit(128 + number)
            self._hurry(received)
        # At the interpreter's exit nobody would catch it: the exit code is settled.
        if is_first and not at_exit.is_exiting():
            raise SystemExit(128 + number)

    def drain(self, received: signal.Signals) -> None:
        after = self.next.get(received)
        then = None if after is None else partial(after.drain, received)
        self.begin(self._timeout, then)

    def _is_over(self, received: signal.Signals) -> bool:
        each: DrainOnSignal | None = self
        while each is not None:
            run = each.loop_thread._run  # noqa: SLF001
            if run is not None and not run.draining.done.is_set:
                return False
            each = each.next.get(received)
        return True

    def _hurry(self, received: signal.Signals) -> None:
        # Also those whose draining has not begun yet: none gets more time.
        each: DrainOnSignal | None = self
        while each is not None:
            each.begin(0.0)
            each = each.next.get(received)

    def begin(
        self, timeout: float | None, then: Callable[[], object] | None = None
    ) -> None:
        """Begin to drain, or hurry; `then` is called at its end, on any thread."""
        run = self.loop_thread._run  # noqa: SLF001
        # In a forked child there is nothing to drain.
        with suppress(BatchQueueError):
            if run is not None:
                run.refuse_inherited()
                run.draining.begin(timeout, tells=True, then=then)
                return
        if then is not None:
            then()
