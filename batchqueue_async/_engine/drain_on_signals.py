"""Drains on a signal, so that `docker stop` loses nothing."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NoReturn, Protocol, runtime_checkable

from batchqueue_async._engine.lifecycle.state import ENDED
from batchqueue_async._engine.manager import BatchQueueManager
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._engine.runtime.forking import abandon_after_fork
from batchqueue_async._engine.runtime.loop_end import is_being_left, uncancel
from batchqueue_async._log import logger
from batchqueue_async._loop_close import call_at_close
from batchqueue_async._loop_time import kept_by
from batchqueue_async._policies.choices import SHUTDOWN_TIMEOUT, Timeout
from batchqueue_async._running_loop import running_loop
from batchqueue_async._validation import (
    refuse,
    require_instance,
    require_iterable,
    require_timeout,
)

_INSTALLED: Final = "_batchqueue_drained_on_signals"

ECHO: Final = 0.1
"""Seconds for which a second signal counts as an echo of the first.

A sender that signals a program and then its whole group, as coreutils' `timeout` and
some supervisors do, sends it twice.
"""


@runtime_checkable
class DrainsOnSignals(Protocol):
    """Something that runs a loop on a thread of its own: a `LoopThread`."""

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
    for the queues. A second signal ends the wait, unless it comes within 0.1 s: then it
    is the first one, which was sent to the program and to its group. Where all is
    drained each further one raises `SystemExit` again, in whatever the program waits
    for by then.

    Called for several managers or queues on one loop, or for several loop threads, it
    drains one after the other, the last one first: call it for the end of a chain
    first.

    A child that is forked meanwhile has the signal handlers from before. On Windows no
    program gets SIGTERM: choose `signal.SIGINT` and `signal.SIGBREAK` there.

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
    chosen = _known(signals)
    if not isinstance(manager, BatchQueueManager | BatchQueue):
        manager.install_draining(chosen, timeout)
        return
    loop = running_loop("drain_on_signals")
    draining = _Draining(manager, timeout)
    for each in chosen:
        draining.replace_handler(loop, each)
    abandon_after_fork(draining)


def _known(signals: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Return the signals, which may be given by their numbers."""
    rule = "an iterable of signals, as in (signal.SIGTERM,)"
    require_iterable("signals", signals, rule)
    chosen: list[signal.Signals] = []
    for each in signals:
        try:
            chosen.append(signal.Signals(each))
        except ValueError:
            refuse("signals", rule, each, TypeError)
    return chosen


class _Draining:
    def __init__(
        self, drained: BatchQueueManager | BatchQueue[Any], timeout: Timeout
    ) -> None:
        self._drained = drained
        self._timeout = _declared(drained) if timeout is SHUTDOWN_TIMEOUT else timeout
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0
        # By signal: the handler from before, and ours as `signal.getsignal` returns it.
        self.replaced: dict[signal.Signals, tuple[Any, Any]] = {}
        # By signal: the one whose handler was replaced, which is drained after this.
        self.next: dict[signal.Signals, _Draining] = {}

    def replace_handler(
        self, loop: asyncio.AbstractEventLoop, each: signal.Signals
    ) -> None:
        before = signal.getsignal(each)
        # An attribute of the loop: a global would keep the loop alive by the queue.
        installed: dict[signal.Signals, _Draining] = kept_by(loop, _INSTALLED, dict)
        last = installed.get(each)
        if last is not None:
            before, _ = last.replaced[each]
            while last is not None and last.is_over_for(self._drained):
                last = last.next.get(each)
            if last is not None:
                self.next[each] = last
        # After that: struck in between, what was drained before still is.
        try:
            loop.add_signal_handler(each, self.begin, each)
        except NotImplementedError:
            self._handle_by_call(loop, each)
        self.replaced[each] = (before, signal.getsignal(each))
        installed[each] = self

    def _handle_by_call(
        self, loop: asyncio.AbstractEventLoop, each: signal.Signals
    ) -> None:
        """Handle it on a loop that has no signal handlers itself, as on Windows."""

        def tell_loop(*_: object) -> None:
            loop.call_soon_threadsafe(self.begin, each)

        def handle_no_more() -> None:
            # As asyncio's own loops: not the handler from before, which may be the
            # runner's. Nor can they, if they are closed on another thread.
            is_ctrl_c = each == signal.SIGINT
            with suppress(ValueError):
                signal.signal(
                    each, signal.default_int_handler if is_ctrl_c else signal.SIG_DFL
                )

        try:
            signal.signal(each, tell_loop)
        except ValueError as error:
            raise RuntimeError(str(error)) from error
        call_at_close(loop, handle_no_more)

    def abandon(self) -> None:
        """Let a forked child end by the signal.

        The parent's loop does not run there; and up to Python 3.11 the child would
        write to the pipe that wakes it, so that the parent would drain.
        """
        for each, (before, ours) in self.replaced.items():
            if signal.getsignal(each) == ours:
                signal.set_wakeup_fd(-1)
                is_lost = before is None or before == ours
                signal.signal(each, signal.SIG_DFL if is_lost else before)

    def begin(self, received: signal.Signals) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None:
            logger.info("%s: draining", received.name, signal=received.name)
            self._began = time.monotonic()
            self._task = loop.create_task(self._drain(received))
            self._task.add_done_callback(
                lambda _: loop.call_soon(_exit, loop, received)
            )
        elif time.monotonic() - self._began > ECHO:
            if self._task.done():
                # What is waited for is none of ours, such as a thread that reads.
                raise SystemExit(128 + received)
            name = received.name
            logger.warning("%s again: not waiting any longer", name, signal=name)
            for each in self._all_for(received):
                each.shorten_deadline()

    def shorten_deadline(self) -> None:
        # For a shutdown that has not begun yet.
        self._timeout = 0.0
        if isinstance(self._drained, BatchQueueManager):
            self._drained.shorten_deadline()
        else:
            parts_of(self._drained).lifecycle.shorten_deadline(0.0)

    async def close(self, received: str | None = None) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        is_struck = False
        while True:
            left = self._timeout
            if left is not None:
                left = max(0.0, began + left - clock())
            try:
                await self._drained.close(left)
            except asyncio.CancelledError:
                # Nobody means this task: all of the loop are being cancelled, as by
                # `asyncio.run` where the main task has ended by a False of `produce`.
                uncancel()
            except Exception:  # noqa: BLE001 - the rest of the chain is drained, too
                # A signal handler's, say, which struck this task: the shutdown goes on.
                says = "the draining of %r was struck"
                logger.exception(says, self._drained, signal=received)
                if is_struck:
                    return
                is_struck = True
            else:
                return

    async def _drain(self, received: signal.Signals) -> None:
        for each in self._all_for(received):
            await each.close(received.name)

    def _all_for(self, received: signal.Signals) -> Iterator[_Draining]:
        """Return what is drained on this signal, in order."""
        each: _Draining | None = self
        while each is not None:
            yield each
            each = each.next.get(received)

    def is_over_for(self, drained: BatchQueueManager | BatchQueue[Any]) -> bool:
        """Whether nothing is left to drain here once `drained` is drained."""
        if self._drained is drained:
            return True
        if isinstance(self._drained, BatchQueueManager):
            return False
        return parts_of(self._drained).state in ENDED


def _declared(drained: BatchQueueManager | BatchQueue[Any]) -> float | None:
    if isinstance(drained, BatchQueueManager):
        return drained._shutdown_timeout  # noqa: SLF001
    return drained.config.shutdown_timeout


def _exit(loop: asyncio.AbstractEventLoop, received: signal.Signals) -> None:
    ending = SystemExit(128 + received)
    if not is_being_left():
        raise ending

    def exit_now() -> NoReturn:
        raise ending

    # The main task has ended first. Raised now, it would cut off what `asyncio.run`
    # still has to do on the loop.
    call_at_close(loop, exit_now, is_last=True)
