"""Looks at what a queue leaves with its loop: tasks and timers."""

import asyncio
from typing import Any

from batchqueue_async import BatchQueue
from tests.engine.until import turns


def live_timers() -> list[asyncio.TimerHandle]:
    """The timers that the loop has still to fire; for the virtual loop."""
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [each for each in scheduled if not each.cancelled()]


def tasks_of(queue: BatchQueue[Any]) -> list[asyncio.Task[Any]]:
    """The queue's own tasks: they carry its name."""
    return [
        each
        for each in asyncio.all_tasks()
        if each.get_name().startswith(f"{queue.name}: ")
    ]


async def cancel_drain_tasks(queue: BatchQueue[Any]) -> None:
    """Cancel them as a stranger would, and let them end or go on, as they will."""
    victims = [each for each in tasks_of(queue) if "drain task" in each.get_name()]
    for each in victims:
        each.cancel()
    await turns()
