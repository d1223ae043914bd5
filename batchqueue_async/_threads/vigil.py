"""Notices, for a thread that waits on it, that a loop is dead or does not run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# A waiting thread looks up this often; so many looks without an answer are too many.
SLICE = 0.1
_PATIENCE = 5


class Vigil:
    """One thread's wait. Counts its own looks, so a suspended process is no alarm.

    Args:
        loop: Whose answers it counts.
        name: What the loop is called in errors.
        error: What they are.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, error: type[Exception]
    ) -> None:
        self._loop = loop
        self._name = name
        self._error = error
        self._unanswered = 0
        self._is_asked = False

    def keep(self, wait: Callable[[float], object], seconds: float | None) -> None:
        """Wait for one slice, or for `seconds` if that is less.

        Raises:
            Exception: `error`. The loop is closed, or has not run for half a second.
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
                f"{self._name} has not run for {_PATIENCE * SLICE} s: it is stopped, "
                "or a handler blocks it"
            )
            raise self._error(msg)
        if not self._is_asked:
            self._is_asked = True
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError as error:
                msg = f"{self._name} is closed"
                raise self._error(msg) from error

    def _answer(self) -> None:
        self._unanswered = 0
        self._is_asked = False
