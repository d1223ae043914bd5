"""The tasks of a ring's consumers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from .delivery import Delivery
from .errors import RingError
from .sequence import Sequence
from .sequencer import Sequencer

logger = logging.getLogger("batchqueue_async.ring")

_running: set[asyncio.Task[None]] = set()
"""Loops refer to their tasks weakly: a ring that nobody holds must not vanish."""


class Consumer(Protocol):
    """An event processor or a worker."""

    @property
    def sequence(self) -> Sequence:
        """How far it has come."""

    @property
    def delivery(self) -> Delivery[Any]:
        """What calls its handler."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Consume until told to stop."""


class Crew:
    """Starts consumers, and halts the ring if one of them ends without being told."""

    def __init__(self, sequencer: Sequencer) -> None:
        self.has_started = False
        self._is_stopping = False
        self._sequencer = sequencer
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """From now on, what is added runs."""
        self.has_started = True

    def add(self, consumer: Consumer) -> None:
        """Run a consumer in a task of its own."""
        name = f"ring consumer {consumer.delivery.handling.name}"
        task = asyncio.create_task(_run(consumer), name=name)
        self._tasks.add(task)
        _running.difference_update(
            [t for t in list(_running) if t.get_loop().is_closed()]
        )
        _running.add(task)
        task.add_done_callback(self._ended)

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """The tasks that have not ended."""
        return frozenset(self._tasks)

    def stop(self) -> None:
        """From now on it is right that consumers end."""
        self._is_stopping = True

    def cancel(self) -> None:
        """End the handlers that run: the deadline has come."""
        self.stop()
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        _running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("%s ended", task.get_name(), exc_info=error)
            self._sequencer.halt(error)
        elif task.cancelled() and not self._is_stopping:
            self._sequencer.halt(RingError(f"{task.get_name()} was cancelled"))


async def _run(consumer: Consumer) -> None:
    # An eager task would call its handler before the crew knows the task.
    await asyncio.sleep(0)
    await consumer.run()
