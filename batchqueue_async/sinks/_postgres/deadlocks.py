"""Of transactions that wait for each other's rows the server ends one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import asyncpg

R = TypeVar("R")

# Whoever is not ended goes on, so that each try has fewer to wait for.
_MOST_TRIES = 5


async def despite_deadlocks(transact: Callable[[], Awaitable[R]]) -> R:
    """Try a transaction again that the server has ended, and undone, for others.

    As of streams that replace rows of the same keys, in the orders in which they come.
    """
    for _ in range(1, _MOST_TRIES):
        with suppress(asyncpg.DeadlockDetectedError):
            return await transact()
    return await transact()
