"""Keeps a partition's waiting items back while a batch of it is not settled.

A batch that is parked for its retry keeps the order of its partition in this way; one
whose handler cannot be stopped keeps the handler from being entered twice.
"""

from __future__ import annotations

import asyncio


class Hold:
    """On while anybody keeps it on."""

    __slots__ = ("_count", "_lifted", "is_on")

    def __init__(self) -> None:
        self._count = 0
        self._lifted: list[asyncio.Future[None]] = []
        self.is_on = False

    def add(self) -> None:
        self._count += 1
        self.is_on = True

    def remove(self) -> None:
        self._count -= 1
        if not self._count:
            self.is_on = False
            for lifted in self._lifted:
                if not lifted.done():
                    lifted.set_result(None)
            self._lifted.clear()

    def lifted(self) -> asyncio.Future[None]:
        """Return a future that is done when it is off."""
        lifted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._count:
            self._lifted.append(lifted)
        else:
            lifted.set_result(None)
        return lifted
