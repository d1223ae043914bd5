"""Keeps a partition's waiting items back while a batch of it is not settled.

A batch that is parked for its retry keeps the order of its partition in this way; one
whose handler cannot be stopped keeps the handler from being entered twice.
"""

from __future__ import annotations

import asyncio


class Hold:
    """On while anybody keeps it on; there is none where nobody does."""

    __slots__ = ("_count", "_lifted")

    def __init__(self) -> None:
        self._count = 0
        self._lifted: list[asyncio.Future[None]] = []

    def add(self) -> None:
        self._count += 1

    def remove(self) -> bool:
        """Undo one `add`; returns whether it is still on."""
        self._count -= 1
        if not self._count:
            for lifted in self._lifted:
                if not lifted.done():
                    lifted.set_result(None)
            self._lifted.clear()
        return self._count > 0

    def lifted(self) -> asyncio.Future[None]:
        """Return a future that is done when it is off."""
        lifted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._count:
            self._lifted.append(lifted)
        else:
            lifted.set_result(None)
        return lifted
