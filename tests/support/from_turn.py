"""Strikes a loop's tasks at one point after the other, without tracing all before it.

Each run of a sweep does what the one before did, up to its point. Traced, that is most
of what a sweep takes.
"""

import asyncio
import gc
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Self

from tests.bridge.interruptions import Interruption


class InterruptionFromTurn(Interruption):
    """An `Interruption` that begins to trace with the turn of the loop of its point.

    Points that are in no turn of the loop are none.

    Args:
        at: Which point it is, of those of the whole run.
        action: What is called there.
        runs_in: As in `Interruption`, and `at_entries`, too.
        loop: Whose turns these are.
        points: How many points there were before each turn, as far as earlier runs of
            the sweep came; the first run is given an empty list.
    """

    def __init__(  # noqa: PLR0913 - what is struck, where, and how
        self,
        at: int,
        action: Callable[[], object],
        runs_in: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
        points: list[int],
        *,
        at_entries: bool = True,
    ) -> None:
        self._first = max(0, bisect_right(points, at) - 1)
        before = points[self._first] if points else 0
        super().__init__(at - before, action, runs_in, at_entries=at_entries)
        self._at, self._points, self._loop = at, points, loop
        self._turn = -1
        self._was_enabled = False
        self._run_once: Callable[[], None]

    def __enter__(self) -> Self:
        self._was_enabled = gc.isenabled()
        gc.disable()
        loop: Any = self._loop
        self._run_once = loop._run_once
        loop._run_once = self._begin_turn
        return self

    def __exit__(self, *args: object) -> None:
        del vars(self._loop)["_run_once"]
        if self._turn >= self._first:
            super().__exit__(*args)
        if self._was_enabled:
            gc.enable()

    def _begin_turn(self) -> None:
        self._turn += 1
        if self._turn == self._first:
            super().__enter__()
        if self._turn == len(self._points) and not self.has_acted:
            self._points.append(self._at - self._left)
        self._run_once()
