"""Drains on a signal, so that `docker stop` loses nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from typing import NoReturn

from batchqueue_async._engine.log import logger
from batchqueue_async._engine.manager import BatchQueueManager
from batchqueue_async._policies.validation import require_timeout


def drain_on_signals(
    manager: BatchQueueManager,
    signals: Iterable[signal.Signals] = (signal.SIGTERM,),
    timeout: float | None = 30.0,
) -> None:
    """Shut the manager's queues down when a signal comes, then end the program.

    Producers get False from then on. After the queues, the program ends by way of
    `SystemExit(128 + signal)`, so `finally` blocks run. A second signal ends the wait.
    Off unless called; web servers have signal handlers of their own, so there the
    manager belongs in the server's lifespan instead.

    Args:
        manager: Its queues are drained, the last created first.
        signals: Their handlers are replaced, on the running loop.
        timeout: Seconds for all queues together; None for no deadline.

    Raises:
        RuntimeError: Not called on the main thread's loop.
        TypeError, ValueError: The timeout is none.
    """
    require_timeout("timeout", timeout)
    loop = asyncio.get_running_loop()
    draining = _Draining(manager, timeout)
    for each in signals:
        loop.add_signal_handler(each, draining.begin, each)


class _Draining:
    def __init__(self, manager: BatchQueueManager, timeout: float | None) -> None:
        self._manager = manager
        self._timeout = timeout
        self._task: asyncio.Task[None] | None = None

    def begin(self, received: signal.Signals) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None:
            logger.info("%s: draining", received.name)
            self._task = loop.create_task(self._drain())
            self._task.add_done_callback(lambda _: loop.call_soon(_exit, received))
        else:
            logger.warning("%s again: not waiting any longer", received.name)
            # The closing may not have begun yet.
            self._timeout = 0.0
            self._manager.hurry()

    async def _drain(self) -> None:
        await self._manager.close(self._timeout)


def _exit(received: signal.Signals) -> NoReturn:
    raise SystemExit(128 + received)
