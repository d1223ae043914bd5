"""Keeps calls into one handler apart where ownership alone does not.

A handler whose items live in one partition is entered by that partition's owner only.
Where they may live in several (a consumer, a custom selector), `on_idle`, `on_flush`
and a handler that must be alone are kept apart from `consume` here. First come, first
served, so that a busy `consume` cannot starve an `on_flush`.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Gate:
    """Many may be inside together, or one alone."""

    __slots__ = ("_alone", "_inside", "_waiting")

    def __init__(self) -> None:
        self._inside = 0
        self._alone = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        return not self._inside

    def try_enter(self, *, alone: bool) -> bool:
        """Enter if that needs no waiting, and overtakes nobody who waits."""
        if self._waiting or not self._has_room(alone=alone):
            return False
        self._admit(alone=alone)
        return True

    async def enter(self, *, alone: bool) -> None:
        """Enter, in order of arrival; a cancelled wait leaves nothing behind."""
        if self.try_enter(alone=alone):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            while self._waiting[0] is not turn or not self._has_room(alone=alone):
                await turn
                self._waiting[self._waiting.index(turn)] = turn = (
                    asyncio.get_running_loop().create_future()
                )
            self._admit(alone=alone)
        finally:
            self._waiting.remove(turn)
            self._wake_next()

    def leave(self) -> None:
        self._inside -= 1
        self._alone = False
        self._wake_next()

    def _has_room(self, *, alone: bool) -> bool:
        return not self._inside if alone else not self._alone

    def _admit(self, *, alone: bool) -> None:
        self._inside += 1
        self._alone = alone

    def _wake_next(self) -> None:
        if self._waiting and not self._waiting[0].done():
            self._waiting[0].set_result(None)
