"""Drains on a signal, so that `docker stop` loses nothing."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any, NoReturn, Protocol, runtime_checkable

from batchqueue_async._engine.manager import BatchQueueManager
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._engine.runtime.forking import abandon_after_fork
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._loop_close import call_at_close
from batchqueue_async._policies.choices import SHUTDOWN_TIMEOUT, Timeout
from batchqueue_async._running_loop import running_loop
from batchqueue_async._validation import require_instance, require_timeout


@runtime_checkable
class DrainsOnSignals(Protocol):
    """What has a loop on a thread of its own: a `LoopThread`."""

    def install_draining(
        self, signals: Iterable[signal.Signals], timeout: Timeout
    ) -> None:
        """Replace the handlers of these signals, on the main thread."""


def drain_on_signals(
    manager: BatchQueueManager | BatchQueue[Any] | DrainsOnSignals,
    signals: Iterable[signal.Signals] = (signal.SIGTERM,),
    timeout: Timeout = SHUTDOWN_TIMEOUT,
) -> None:
    """Shut a manager's or a `LoopThread`'s queues, or one queue, down on a signal.

    Producers get False from then on. With a manager, or a queue, the program ends after
    that, by way of `SystemExit(128 + signal)`, so `finally` blocks run. With a
    `LoopThread` the main thread gets that `SystemExit` at once, wherever it is, also in
    `produce`; where it leaves the `LoopThread`, or at the interpreter's exit, it waits
    for the queues. A second signal ends the wait.

    A child that is forked meanwhile has the handlers from before.

    Off unless called; web servers have signal handlers of their own, so there the
    manager belongs in the server's lifespan instead.

    Args:
        manager: Its queues are drained, the last created first; or the queue is.
        signals: Their handlers are replaced; with a `LoopThread` those of the program,
            else those of the running loop.
        timeout: Seconds for all queues together; None for no deadline. By default the
            `shutdown_timeout` of what is drained: a manager's, a queue's config's, a
            `LoopThread`'s.

    Raises:
        RuntimeError: Not called on the main thread's loop; with a `LoopThread`, not
            called on the main thread.
        TypeError, ValueError: An argument is wrong.
    """
    if timeout is not SHUTDOWN_TIMEOUT:
        require_timeout("timeout", timeout)
    kinds = (BatchQueueManager, BatchQueue, DrainsOnSignals)
    rule = "a BatchQueueManager, a BatchQueue or a LoopThread"
    require_instance("manager", manager, kinds, rule)
    if not isinstance(manager, BatchQueueManager | BatchQueue):
        manager.install_draining(tuple(signals), timeout)
        return
    loop = running_loop("drain_on_signals")
    draining = _Draining(manager, timeout)
    for each in signals:
        draining.replace_handler(loop, each)
    abandon_after_fork(draining)


class _Draining:
    def __init__(
        self, drained: BatchQueueManager | BatchQueue[Any], timeout: Timeout
    ) -> None:
        self._drained = drained
        self._timeout = timeout
        self._task: asyncio.Task[None] | None = None
        self._replaced: list[tuple[signal.Signals, Any, Any]] = []

    def replace_handler(
        self, loop: asyncio.AbstractEventLoop, each: signal.Signals
    ) -> None:
        before = signal.getsignal(each)
        loop.add_signal_handler(each, self.begin, each)
        self._replaced.append((each, before, signal.getsignal(each)))

    def abandon(self) -> None:
        """Let a forked child end by the signal.

        The parent's loop does not run there; and up to Python 3.11 the child would
        write to the pipe that wakes it, so that the parent would drain.
        """
        for each, before, ours in self._replaced:
            if signal.getsignal(each) == ours:
                signal.set_wakeup_fd(-1)
                is_lost = before is None or before == ours
                signal.signal(each, signal.SIG_DFL if is_lost else before)

    def begin(self, received: signal.Signals) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None:
            logger.info("%s: draining", received.name, signal=received.name)
            self._task = loop.create_task(self._drain())
            self._task.add_done_callback(
                lambda _: loop.call_soon(_exit, loop, received)
            )
        else:
            name = received.name
            logger.warning("%s again: not waiting any longer", name, signal=name)
            # The closing may not have begun yet.
            self._timeout = 0.0
            if isinstance(self._drained, BatchQueueManager):
                self._drained.shorten_deadline()
            else:
                parts_of(self._drained).lifecycle.shorten_deadline(0.0)

    async def _drain(self) -> None:
        await self._drained.close(self._timeout)


def _exit(loop: asyncio.AbstractEventLoop, received: signal.Signals) -> None:
    ending = SystemExit(128 + received)
    if not _is_being_left():
        raise ending

    def exit_now() -> NoReturn:
        raise ending

    # The main task has ended first. Raised now, it would cut off what `asyncio.run`
    # still has to do on the loop.
    call_at_close(loop, exit_now, is_last=True)


def _is_being_left() -> bool:
    """Whether the loop only runs for what `asyncio.run` does after the main task."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None and frame.f_code is not asyncio.Runner.close.__code__:
        frame = frame.f_back
    return frame is not None
