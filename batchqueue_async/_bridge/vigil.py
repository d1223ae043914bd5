"""Notices, for a thread that waits on it, that a loop is dead or does not run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from batchqueue_async._policies.errors import BatchQueueError

# A waiting thread looks up this often; so many looks without an answer are too many.
SLICE = 0.1
_PATIENCE = 5


class Vigil:
    """One thread's wait. Counts its own looks, so a suspended process is no alarm."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._name = name
        self._loop = loop
        self._unanswered = 0
        self._is_asked = False

    def keep(self, wait: Callable[[float], object], seconds: float | None) -> None:
        """Wait for one slice, or for `seconds` if that is less.

        Raises:
            BatchQueueError: The loop is closed, or has not run for half a second.
        """
        self._ask()
        started = time.monotonic()
        wait(SLICE if seconds is None else max(0.0, min(SLICE, seconds)))
        if time.monotonic() - started >= 0.9 * SLICE:
            # Shorter waits, ended by others, say nothing about the loop.
            self._unanswered += 1

    def _ask(self) -> None:
        if self._unanswered >= _PATIENCE:
            msg = (
                f"the loop of queue {self._name!r} has not run for "
                f"{_PATIENCE * SLICE} s: it is stopped, or a handler blocks it"
            )
            raise BatchQueueError(msg)
        if not self._is_asked:
            self._is_asked = True
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError as error:
                msg = f"the loop of queue {self._name!r} is closed"
                raise BatchQueueError(msg) from error

    def _answer(self) -> None:
        self._unanswered = 0
        self._is_asked = False
