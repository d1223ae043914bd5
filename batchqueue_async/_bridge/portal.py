"""Anyio's portal, which in a forked child says so instead of waiting for ever."""

from __future__ import annotations

from collections.abc import Callable

from anyio.from_thread import BlockingPortal


class Portal(BlockingPortal):
    def __init__(self, refuse_inherited: Callable[[], None]) -> None:
        super().__init__()
        self._refuse_inherited = refuse_inherited

    def _check_running(self) -> None:
        # Private, but all calls of a portal begin with it, those of later versions too.
        self._refuse_inherited()
        super()._check_running()
