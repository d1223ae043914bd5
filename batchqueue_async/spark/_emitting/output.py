"""Rows that handlers have emitted, until Spark takes them."""

from __future__ import annotations

import asyncio
import threading
from asyncio import _get_running_loop
from collections.abc import Sequence
from typing import Any

from batchqueue_async import BatchQueueError


class Output:
    """Any thread adds rows; the loop alone waits, and takes them.

    Made on the loop.

    Args:
        most: From how many rows on it is full.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._rows: list[Any] = []
        self._is_open = True
        self._is_wanted = True
        self._is_bound = True
        self._is_told = False
        self._room = asyncio.Event()
        # Set when it becomes full; whoever takes the rows waits for other news, too.
        self.news: asyncio.Event = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether rows should be taken before more are emitted."""
        return len(self._rows) >= self._most

    def add(self, rows: Sequence[Any]) -> None:
        """Take up rows, also beyond what is full."""
        with self._lock:
            if not self._is_open:
                msg = "a row was emitted for a task of Spark's that is over"
                raise BatchQueueError(msg)
            if not self._is_wanted:
                return
            self._rows += rows
            tells = self.is_full and not self._is_told
            self._is_told = self._is_told or tells
        if tells:
            if _get_running_loop() is self._loop:
                self.news.set()
            else:
                self._loop.call_soon_threadsafe(self.news.set)

    async def wait_for_room(self) -> None:
        while self._must_wait:
            self._room.clear()
            await self._room.wait()

    def wait_here(self) -> None:
        """Wait while it is full, on a thread that isn't the loop's."""
        if self._must_wait:
            waiting = self.wait_for_room()
            asyncio.run_coroutine_threadsafe(waiting, self._loop).result()

    def take(self) -> list[Any]:
        with self._lock:
            rows, self._rows = self._rows, []
            self._is_told = False
        self._room.set()
        return rows

    def unbind(self) -> None:
        """Let nobody wait any more: whoever takes the rows waits for who emits them."""
        self._is_bound = False
        self._room.set()

    def give_up(self) -> None:
        """Drop all rows from now on: nobody wants them, and no handler is to blame."""
        with self._lock:
            self._is_wanted = False
            self._rows = []
        self.unbind()

    def close(self) -> list[Any]:
        """Refuse rows from now on; returns those that are left. On any thread."""
        with self._lock:
            self._is_open = False
            rows, self._rows = self._rows, []
        return rows

    @property
    def _must_wait(self) -> bool:
        return self._is_bound and self._is_open and self.is_full
