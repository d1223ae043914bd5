"""What a signal does to a program whose queues run on a `LoopThread`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import FrameType

from batchqueue_async._bridge import at_exit
from batchqueue_async._policies.errors import BatchQueueError


class SignalDraining:
    """A signal handler: the first signal ends the program, the second its wait.

    The main thread unwinds by `SystemExit(128 + signal)` from wherever it is, so that
    `finally` blocks run. It waits for the draining where it leaves the `LoopThread`, or
    at the interpreter's exit.

    Args:
        begin: Begins to drain, within so many seconds, or brings the end forward.
        timeout: Seconds for all queues together.
    """

    def __init__(
        self, begin: Callable[[float | None], None], timeout: float | None
    ) -> None:
        self._begin = begin
        self._timeout = timeout
        self._has_begun = False

    def __call__(self, received: int, frame: FrameType | None) -> None:
        """Drain, and end the program."""
        is_first, self._has_begun = not self._has_begun, True
        # In a forked child there is nothing to drain.
        with contextlib.suppress(BatchQueueError):
            self._begin(self._timeout if is_first else 0.0)
        # While the interpreter exits nobody would catch it, and its status stands.
        if is_first and not at_exit.is_exiting():
            raise SystemExit(128 + received)
