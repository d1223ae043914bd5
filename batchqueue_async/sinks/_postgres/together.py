"""Work on several connections at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence


async def together(works: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Do all of it at the same time, and return when nothing of it goes on.

    Raises:
        Exception: What the first of them raised; the others were cancelled.
    """
    if len(works) == 1:
        await works[0]()
        return
    tasks = [asyncio.ensure_future(work()) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
