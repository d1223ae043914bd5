"""A staged sink that keeps no rows: for benchmarks, and to try a job out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from batchqueue_async._validation import require_at_least

from .checks import FromOptions
from .epochs import Epoch
from .staged import Attempt, Token, rows_of


class CountingStagedSink(FromOptions):
    """Counts rows and forgets them; the receipts are real.

    It is not exactly once, because it has no memory: nothing outlives the object, so a
    repeated epoch is counted again. Costs nothing but `delay`.

    Args:
        delay: Seconds that each `stage` call takes, for a sink that takes time.
    """

    def __init__(self, delay: float = 0.0) -> None:
        require_at_least("delay", delay, 0)
        self._delay = delay
        self._open: dict[str, int] = {}
        self._published: dict[Epoch, int] = {}

    @property
    def published(self) -> Mapping[Epoch, int]:
        """How many rows this object has published, by epoch."""
        return self._published

    async def stage(self, attempt: Attempt, items: list[Any], /) -> None:
        """Count the rows; an item without `num_rows` is one."""
        if self._delay:
            await asyncio.sleep(self._delay)
        rows = sum(getattr(item, "num_rows", 1) for item in items)
        self._open[attempt.name] = self._open.get(attempt.name, 0) + rows

    async def seal(self, attempt: Attempt, /) -> Token:
        """Return the count."""
        return Token(attempt, self._open.pop(attempt.name, 0))

    async def abandon(self, attempt: Attempt, /) -> None:
        """Forget the count."""
        self._open.pop(attempt.name, None)

    async def publish(self, epoch: Epoch, tokens: Sequence[Token], /) -> bool:
        """Remember how many rows the epoch has, unless this object does already."""
        rows = rows_of(epoch, tokens)
        if epoch in self._published:
            return False
        self._published[epoch] = rows
        return True

    async def discard(self, epoch: Epoch, run: str, /) -> None:
        """Do nothing: sealed attempts are forgotten already."""

    async def is_published(self, epoch: Epoch, /) -> bool:
        """Return whether this object has published it."""
        return epoch in self._published

    async def close(self) -> None:
        """Forget what is open."""
        self._open.clear()
