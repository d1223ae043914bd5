"""Anyio's portal, which in a forked child says so instead of waiting for ever."""

from __future__ import annotations

import os

from anyio.from_thread import BlockingPortal

from batchqueue_async._bridge.at_exit import refuse_inherited


class Portal(BlockingPortal):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._process = os.getpid()

    def _check_running(self) -> None:
        # Private, but all calls of a portal begin with it, those of later versions too.
        refuse_inherited(self._name, self._process)
        super()._check_running()
