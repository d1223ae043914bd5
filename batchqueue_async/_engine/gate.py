"""Keeps calls into one handler apart where ownership alone does not.

A handler whose items live in one partition is entered by that partition's owner only.
But its items may live in several (a consumer, a custom selector, two types), and its
hooks may be called by another drain task. First come, first served, so that a busy
`consume` cannot starve an `on_flush`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

ALONE = "alone"
"""The slot of hooks: nobody else is inside."""
TOGETHER = "together"
"""The slot of a `consume` that may run several times at once."""


class Gate:
    """Lets callers with different slots in together, and one of each at a time."""

    __slots__ = ("_inside", "_waiting", "stuck")

    def __init__(self) -> None:
        # How many with each slot; a plain dict, since a Counter is slow to change.
        self._inside: dict[Hashable, int] = {}
        self._waiting: list[tuple[Hashable, asyncio.Future[None]]] = []
        # Slot and batch of calls that cannot be stopped.
        self.stuck: list[tuple[Hashable, Any]] = []

    @property
    def is_free(self) -> bool:
        return not self._inside and not self._waiting

    def try_enter(self, slot: Hashable) -> bool:
        """Enter if that needs no waiting, and overtakes nobody who waits."""
        if not self._inside and not self._waiting:
            self._inside[slot] = 1
            return True
        if self._waiting or not self._has_room(slot):
            return False
        self._go_in(slot)
        return True

    async def enter(self, slot: Hashable) -> None:
        """Enter, in order of arrival; a cancelled wait leaves nothing behind."""
        if not self.try_enter(slot):
            await self.admitted(slot, self.ask(slot))

    def ask(self, slot: Hashable) -> asyncio.Future[None]:
        """Take a place in the order of arrival, for `admitted` to wait on."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.try_enter(slot):
            answer.set_result(None)
        else:
            self._waiting.append((slot, answer))
        return answer

    async def admitted(self, slot: Hashable, answer: asyncio.Future[None]) -> None:
        """Wait until one is inside."""
        try:
            await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                self._waiting.remove((slot, answer))
                self._admit_next()
            else:
                self.leave(slot)
            raise

    def leave(self, slot: Hashable) -> None:
        inside = self._inside
        if inside[slot] > 1:
            inside[slot] -= 1
        else:
            del inside[slot]
        if self._waiting:
            self._admit_next()

    def _go_in(self, slot: Hashable) -> None:
        self._inside[slot] = self._inside.get(slot, 0) + 1

    @staticmethod
    def excludes(one: Hashable, other: Hashable) -> bool:
        """Whether callers with these slots may not be inside at once."""
        return ALONE in (one, other) or (one == other != TOGETHER)

    def _has_room(self, slot: Hashable) -> bool:
        return not any(self.excludes(slot, inside) for inside in self._inside)

    def _admit_next(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            slot, admitted = self._waiting[0]
            if admitted.cancelled():
                # It is about to take itself out.
                return
            del self._waiting[0]
            self._go_in(slot)
            admitted.set_result(None)
