"""Notices, for a thread that waits, that the ring's loop is dead or does not run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from .errors import RingError

SLICE: Final = 0.1
"""Seconds between a waiting thread's looks; so many in vain are too many:"""
_PATIENCE: Final = 5


class Vigil:
    """One thread's wait. Counts its own looks, so a suspended process is no alarm."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._unanswered = 0
        self._is_asked = False

    def keep(self, wait: Callable[[float], object], seconds: float | None) -> None:
        """Wait for one slice, or for `seconds` if that is less.

        Raises:
            RingError: The loop is closed, or has not run for half a second.
        """
        self._ask()
        started = time.monotonic()
        wait(SLICE if seconds is None else min(SLICE, seconds))
        if time.monotonic() - started >= 0.9 * SLICE:
            # Shorter waits, ended by others, say nothing about the loop.
            self._unanswered += 1

    def _ask(self) -> None:
        if self._unanswered >= _PATIENCE:
            msg = (
                f"the ring's loop has not run for {_PATIENCE * SLICE} s: it is "
                "stopped, or a handler blocks it"
            )
            raise RingError(msg)
        if not self._is_asked:
            self._is_asked = True
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError as error:
                msg = "the ring's loop is closed"
                raise RingError(msg) from error

    def _answer(self) -> None:
        self._unanswered = 0
        self._is_asked = False
