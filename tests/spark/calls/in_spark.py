"""Calls and clients that executors import."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

Batch = list[dict[str, Any]]


async def tenfold(batch: Batch) -> Batch:
    """Take a moment."""
    await asyncio.sleep(0.001)
    return [{"id": item["id"], "y": item["id"] * 10} for item in batch]


class Client:
    """Notes in a folder which processes opened one."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[int]:
        """Open it."""
        # Exclusive: a second one of this process would fail.
        (self._folder / f"{os.getpid()}").touch(exist_ok=False)
        yield os.getpid()


async def process_of(client: int, batch: Batch) -> list[tuple[int, int]]:
    """Tell who was called."""
    await asyncio.sleep(0.01)
    return [(item["id"], client) for item in batch]


class FailingOnce:
    """A call whose first attempt fails, in whatever process."""

    def __init__(self, marker: str) -> None:
        self._marker = Path(marker)

    async def __call__(self, batch: Batch) -> Batch:
        """Answer, or fail."""
        if self._is_first():
            raise OSError
        return await tenfold(batch)

    def _is_first(self) -> bool:
        is_first = not self._marker.exists()
        self._marker.touch()
        return is_first


class Dying:
    """A call that kills its process once, in the middle of a task."""

    def __init__(self, marker: str) -> None:
        self._marker = Path(marker)

    async def __call__(self, batch: Batch) -> Batch:
        """Answer, or die."""
        answer = await tenfold(batch)
        if batch[0]["id"] == 40 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), 9)
        return answer


class AnsweringFirst:
    """A call that answers for the first rows; for others when a file is there.

    If that takes a minute the process kills itself: at its end in good order it would
    hand over what it has.
    """

    def __init__(self, marker: str) -> None:
        self._marker = Path(marker)

    async def __call__(self, batch: Batch) -> Batch:
        """Answer, or wait."""
        for _ in range(600):
            if batch[0]["id"] == 0 or self._marker.exists():
                return await tenfold(batch)
            await asyncio.sleep(0.1)
        os.kill(os.getpid(), 9)
        return []
