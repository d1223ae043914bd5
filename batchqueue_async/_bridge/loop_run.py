"""One life of a `LoopThread`: its thread, the loop on it, and how both end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from traceback import format_stack
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._bridge import at_exit, fork_rest
from batchqueue_async._bridge.fork_rest import Rest
from batchqueue_async._bridge.loop_call import call_on_loop
from batchqueue_async._bridge.loop_factory import loop_factory, unsaid
from batchqueue_async._bridge.loop_shutdown import LoopShutdown
from batchqueue_async._engine.handlers.handler_lock_and_call import handler_call
from batchqueue_async._engine.manager import BatchQueueManager
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._engine.runtime.loop_end import uncancel
from batchqueue_async._log import logger
from batchqueue_async._policies.errors import BatchQueueError, DeliveryError
from batchqueue_async._threads.clock import monotonic
from batchqueue_async._threads.dead_loop_watchdog import (
    FOR_QUEUES,
    PATIENCE,
    Heartbeat,
    LoopWatchdog,
)
from batchqueue_async._threads.event import ThreadEvent

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

R = TypeVar("R")

# How long a fork waits for a loop that has just been started.
_START_WITHIN = 5.0

# Seconds that the thread gets to end after the draining, even past the deadline.
_LAST_SECONDS = 1.0

# Seconds that one nap counts at most, while the end is waited for.
_LONGEST_NAP = 1.0

# Urgency at which a wait for the end is hurried, and given up. A Ctrl-C adds two, any
# other attempt to end the program one.
_HURRIED, _GIVEN_UP = 2, 4

# Libraries that make greenlets of threads, and how to ask each whether it does so.
_REPLACING = {
    "gevent": ("gevent.monkey", "is_module_patched", "threading"),
    "eventlet": ("eventlet.patcher", "is_monkey_patched", "thread"),
}

# Who waits for a thread that does not run its loop yet.
_starters: dict[int, threading.Thread] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_starters.clear)


class LoopRun:
    """A thread that runs a loop until it is told to end, whatever code on it does."""

    draining: LoopShutdown
    _loop: asyncio.AbstractEventLoop

    def __init__(
        self, name: str, shutdown_timeout: float | None, patience: float
    ) -> None:
        self.manager = BatchQueueManager()
        self.portal: BlockingPortal | None = None
        # SystemExits and KeyboardInterrupts that code on the loop has raised.
        self.endings: list[BaseException] = []
        # The thread that is in its `with` block, and will leave that by itself.
        self.entered_by: threading.Thread | None = None
        # A thread that started this one at the interpreter's exit is still using it.
        starter = threading.current_thread()
        self.started_late_by = starter if at_exit.is_exiting() else None
        self.is_of_main_thread = starter is threading.main_thread()
        self._starter = starter
        # The higher, the earlier it is drained at the interpreter's exit.
        self.turn = 0
        # Whether the interpreter's exit leaves it open until other threads have ended;
        # then whatever opened it closes it.
        self.is_late = False
        # Seconds past the deadline that a thread has waited. Not by the clock: where
        # the process was stopped, the loop had no turn in them either.
        self._late = 0.0
        # Whether queues are opened by whoever comes first, who is not to be seen there.
        self.is_of_all = False
        self._name = name
        self._shutdown_timeout = shutdown_timeout
        self._patience = patience
        self._process = os.getpid()
        self._failure: BaseException | None = None
        self._silence: BatchQueueError | None = None
        self._is_waited_for = False
        self._ready = ThreadEvent()
        self._over = ThreadEvent()
        self._thread = threading.Thread(target=self._run, name=name)

    def refuse_inherited(self) -> None:
        if self._process != os.getpid():
            msg = (
                f"LoopThread {self._name!r} is its parent process's: a forked child "
                "makes one of its own"
            )
            raise BatchQueueError(msg)

    def has(self, queue: BatchQueue[Any]) -> bool:
        """Whether the queue is on this loop, so that it ends with it."""
        return parts_of(queue).loop is self._loop

    def is_called_by_handler(self) -> bool:
        """Whether the caller is part of a handler's call here, on any thread."""
        queues = self.draining.queues()
        return any(handler_call(each.parts.detector) for each in queues)

    def refuse_on_loop(self, verb: str) -> None:
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001
            msg = f"{verb} of LoopThread {self._name!r} on its own loop would never end"
            raise BatchQueueError(msg)

    def start(self) -> None:
        refuse_greenlets(self._name)
        fork_rest.remember(self)
        try:
            # Set here: a subinterpreter may refuse daemon threads, or threads at all.
            self._thread.daemon = True
            self._thread.start()
        except RuntimeError as error:
            fork_rest.forget(self)
            self._failure = error
        else:
            while not self._ready.is_set:
                self._ready.wait(1.0)
        if self._failure is not None:
            msg = f"LoopThread {self._name!r} cannot start: {self._failure}"
            raise BatchQueueError(msg) from self._failure

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def rest(self, rest: Rest) -> Callable[[], None]:
        """Have the loop rest between two calls, while the process is forked."""
        if self._over.is_set:
            return rest.over.set
        if not self._ready.is_set:
            return partial(self._rest_once_started, rest)

        def run() -> None:
            with Heartbeat.of(self._loop).excused():
                rest.run()

        # One that is closed has nothing left to run.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(run, context=Context())
        return partial(self._wait_for_rest, rest)

    def _rest_once_started(self, rest: Rest) -> None:
        # Starting, it imports modules: so it holds locks that a child needs, too.
        self._ready.wait(_START_WITHIN)
        if self._ready.is_set:
            self.rest(rest)()

    def _wait_for_rest(self, rest: Rest) -> None:
        watchdog = self._watchdog(min(self._patience, PATIENCE))
        with suppress(BatchQueueError):
            while not (rest.reached.is_set or self._over.is_set):
                watchdog.wait(rest.reached.wait, None)

    def call(
        self,
        start: Callable[[], Coroutine[Any, Any, R]],
        context: Context | None = None,
    ) -> R:
        return call_on_loop(start, self._watchdog(), context=context)

    def wait(self) -> bool:
        """Wait until `draining` is done and the thread has ended; whether it is done.

        A Ctrl-C brings the deadline forward, and so does the second of whatever else is
        to end the program; it is raised when the end has come.
        """
        ending: BaseException | None = None
        urgency = 0
        while urgency < _GIVEN_UP:
            try:
                self._wait()
                break
            except (SystemExit, KeyboardInterrupt) as error:
                ending = ending or error
                urgency += 1 if isinstance(error, SystemExit) else 2
                if urgency >= _HURRIED:
                    # Told: the caller will be interrupted, and can't take what is left.
                    self.draining.begin(0.0, tells=True)
        if not self.draining.done.is_set:
            self.draining.log_left(self._why_undone())
        self._is_waited_for = True
        if ending is not None:
            raise ending
        return self.draining.done.is_set

    def drain_at_exit(self) -> None:
        """Drain at the interpreter's exit; there is nobody to raise anything to."""
        if self._is_waited_for:
            # That wait ended without success, and what was left is logged.
            return
        self.draining.begin(self._shutdown_timeout, tells=True)
        try:
            self.wait()
        finally:
            for each in self.endings:
                logger.error(
                    "LoopThread %r: %r on its loop was to end the program; it is told "
                    "only now, since nobody stopped the LoopThread",
                    self._name,
                    each,
                    exc_info=each,
                    loop_thread=self._name,
                )

    def flush(self) -> None:
        """Hand on what waits, within the time that draining has."""
        self.call(partial(self.manager.flush, self._shutdown_timeout))

    def is_flushed_at_exit(self) -> bool:
        """Hand on what waits, and stay open; returns whether that was possible in time.

        If not, draining has no more time either.
        """
        try:
            self.flush()
        except DeliveryError:
            # Items that failed were told of when they did.
            return True
        except BaseException:  # noqa: BLE001 - a Ctrl-C hurries, and ends the program
            self.draining.begin(0.0, tells=True)
            return False
        return True

    def _watchdog(self, patience: float | None = None) -> LoopWatchdog:
        name = f"the loop of LoopThread {self._name!r}"
        patience = self._patience if patience is None else patience
        return LoopWatchdog(self._loop, name, BatchQueueError, patience, FOR_QUEUES)

    def _why_undone(self) -> str:
        if self._over.is_set:
            return f"the thread of its loop has ended: {self._failure!r}"
        if self._silence is None:
            return "its loop answers, but nobody waits for it any longer"
        # It may wait for a lock that was held when this process was forked, perhaps in
        # C, or be slow. Its innermost calls tell.
        frame = sys._current_frames().get(self.ident or 0)  # noqa: SLF001
        stack = "".join(format_stack(frame, limit=8)) if frame else ""
        return f"{self._silence}; it is here:\n{stack}"

    def _wait(self) -> None:
        watchdog = self._watchdog()
        done = self.draining.done
        while not (done.is_set or self._over.is_set):
            left = self.draining.seconds_left()
            if left is None or left > 0:
                # A thread that fails before it has drained never sets `done`.
                done.wait(1.0 if left is None else min(1.0, left))
                continue
            # After the deadline a loop that runs tells `on_error` what is left.
            if self.draining.is_overdue(self._late):
                return
            began = monotonic()
            try:
                watchdog.wait(done.wait, None)
            except BatchQueueError as silence:
                self._silence = silence
                return
            self._late += min(_LONGEST_NAP, monotonic() - began)
        left = self.draining.seconds_left()
        until = monotonic() + max(_LAST_SECONDS, left or 0.0)
        while not self._over.is_set and monotonic() < until:
            self._over.wait(_LAST_SECONDS)
        if self._over.is_set:
            self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        _starters[threading.get_ident()] = self._starter
        try:
            runner = asyncio.Runner(loop_factory=loop_factory())
            with unsaid():
                self._loop = runner.get_loop()
            with runner:
                self.draining = LoopShutdown(self._loop)
                at_exit.remember(self)
                self._serve()
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            # Once the loop has started, nobody does: for one, where its executor can't
            # be ended for want of a new thread.
            self._failure = error
            if self._ready.is_set and not self.draining.done.is_set:
                name = self._name
                says = "LoopThread %r: its loop failed"
                logger.exception(says, name, loop_thread=name)
        finally:
            at_exit.forget(self)
            fork_rest.forget(self)
            self._set_ready()
            self._over.set()
            if hasattr(self, "draining"):
                self.draining.go_on()

    def _set_ready(self) -> None:
        _starters.pop(threading.get_ident(), None)
        self._ready.set()

    def _serve(self) -> None:
        """Run the loop, again and again: it must not end before its queues have."""
        main = self._loop.create_task(self._main())
        while not main.done():
            try:
                self._loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt) as ending:
                if not any(each is ending for each in self.endings):
                    self.endings.append(ending)
            except RuntimeError:
                # Somebody has stopped the loop.
                if main.done():
                    raise

    async def _main(self) -> None:
        # Late: it would add a fifth to the time that importing the package takes.
        from batchqueue_async._bridge.portal import portal_that_asks  # noqa: PLC0415

        while not self.draining.done.is_set:
            try:
                portal = portal_that_asks(self.refuse_inherited)
                async with portal as self.portal:
                    self._set_ready()
                    await self.draining.ended.wait()
                    timer = self._cut_off_tasks(self.portal)
                # Else it would come while the loop is closed, if not before.
                if timer is not None:
                    timer.cancel()
            except asyncio.CancelledError:
                # Somebody cancelled all tasks of a loop that goes on.
                uncancel()
            except BaseExceptionGroup:
                # A task of the portal raised SystemExit or KeyboardInterrupt, which has
                # ended all of the portal's tasks.
                name = self._name
                says = "LoopThread %r: its portal is renewed"
                logger.warning(says, name, loop_thread=name)

    def _cut_off_tasks(self, portal: BlockingPortal) -> asyncio.TimerHandle | None:
        """Let what else was started through the portal have the rest of the time."""
        left = self.draining.seconds_left()

        def cut_off() -> None:
            self._cutting = self._loop.create_task(portal.stop(cancel_remaining=True))

        return None if left is None else self._loop.call_later(left, cut_off)


def starter_of_this_thread() -> threading.Thread | None:
    """Return who waits until this thread runs its loop, if somebody does."""
    return _starters.get(threading.get_ident())


def refuse_greenlets(name: str) -> None:
    """Refuse to run a loop on a greenlet: it waits in the operating system.

    All greenlets of its thread would wait with it, and the program hang.

    Raises:
        BatchQueueError: Threads that start now are greenlets.
    """
    for library, (module, question, part) in _REPLACING.items():
        is_replaced = getattr(sys.modules.get(module), question, None)
        if is_replaced is not None and is_replaced(part):
            msg = (
                f"LoopThread {name!r} needs a thread of its own, and {library} makes "
                "greenlets of threads: use workers that are threads or processes"
            )
            raise BatchQueueError(msg)
