"""An event loop on a thread of its own, for programs that have none."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Mapping
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from batchqueue_async._bridge import at_exit
from batchqueue_async._bridge.loop_run import LoopRun
from batchqueue_async._bridge.loop_thread_on_signal import DrainOnSignal
from batchqueue_async._bridge.sync_queue import SyncBatchQueue
from batchqueue_async._engine.manager_flush import reporting, settle_all
from batchqueue_async._log import logger
from batchqueue_async._one_process import OfOneProcess
from batchqueue_async._policies.choices import SHUTDOWN_TIMEOUT, Timeout
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._policies.handlers import HandlerLike
from batchqueue_async._policies.items import T
from batchqueue_async._threads.dead_loop_watchdog import PATIENCE
from batchqueue_async._validation import (
    require_instance,
    require_positive,
    require_text,
    require_timeout,
)

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal


class LoopThread(OfOneProcess):
    """An event loop (uvloop's when installed) with the queues that run on it.

    Use it as `with LoopThread() as loop_thread`, or call `start` and `stop`. Either end
    shuts all queues of the loop down, the last started first, within `shutdown_timeout`
    seconds. Leaving `with` logs what is left then and passes it to `on_error`; `stop`
    returns it. One that is not stopped is drained in the same way when the interpreter
    exits, before it waits for other threads: whoever produces then gets False.

    The program's end waits for the queues beyond the deadline for as long as handlers
    take to be cancelled and `on_error` takes to be told, some 2 seconds per queue at
    most; a loop that a handler blocks is given up, and what it leaves logged.

    `sys.exit` and a KeyboardInterrupt in a handler fail its batch. The rest is drained,
    and the end of the `with` block, or `stop`, raises it.

    In a forked child every method raises `BatchQueueError`: the thread is the parent's.

    Args:
        name: The thread's name.
        shutdown_timeout: Seconds for all queues together; None for no deadline.
        patience: Seconds after which a loop that does not answer while a thread waits
            counts as dead, for all calls here and of the queues that it opens: see
            `SyncBatchQueue`.

    Raises:
        TypeError, ValueError: The name is no text, or a number of seconds is none.
    """

    def __init__(
        self,
        name: str = "batchqueue",
        *,
        shutdown_timeout: float | None = 30.0,
        patience: float = PATIENCE,
    ) -> None:
        require_text("name", name, 'a str, as in LoopThread("name")')
        require_timeout("shutdown_timeout", shutdown_timeout)
        require_positive("patience", patience)
        self._name = name
        self._shutdown_timeout = shutdown_timeout
        self._patience = patience
        self._run: LoopRun | None = None
        self._end: Literal["left", "stopped"] | None = None
        self._process = os.getpid()
        self._starting = threading.Lock()

    def __repr__(self) -> str:
        state = self._end or ("new" if self._run is None else "running")
        return f"<LoopThread {self._name!r} {state}>"

    def start(self) -> Self:
        """Start the thread; if it runs, do nothing.

        Raises:
            BatchQueueError: It was stopped, or left; or no thread can be started, also
                where gevent or eventlet makes greenlets of threads.
        """
        self._start()
        return self

    def _start(self, entered_by: threading.Thread | None = None) -> LoopRun:
        if self._run is not None:
            self._run.refuse_inherited()
        with self._lock():
            run = self._run
            if run is None:
                if self._end is not None:
                    raise BatchQueueError(self._was_stopped)
                run = LoopRun(self._name, self._shutdown_timeout, self._patience)
                # Before: the interpreter's exit, which may come meanwhile, drains what
                # nobody is in.
                run.entered_by = entered_by
                run.start()
                self._run = run
            elif entered_by is not None:
                run.entered_by = entered_by
            return run

    def stop(
        self,
        timeout: Timeout = SHUTDOWN_TIMEOUT,
    ) -> dict[str, list[Any]]:
        """Shut all queues of the loop down, and end the thread.

        Idempotent; of concurrent calls one gets the lists. Called by a handler, on a
        thread, it only begins and returns {} at once: what is left then is logged and
        passed to `on_error`, as it is after a Ctrl-C during the call.

        Args:
            timeout: Seconds for all queues together, `shutdown_timeout` unless given;
                None for no deadline.

        Returns:
            What the deadline left unhandled, by queue; it is logged, too.

        Raises:
            BatchQueueError: On the loop's own thread; or a handler blocks the loop
                until after the deadline: what is left then is logged.
            WouldDeadlock: A handler on another loop would wait for itself; the shutdown
                goes on, and what is left then is logged and passed to `on_error`.
            SystemExit, KeyboardInterrupt: A handler has raised it.
            TypeError, ValueError: `timeout` is no number of seconds.
        """
        if timeout is SHUTDOWN_TIMEOUT:
            timeout = self._shutdown_timeout
        require_timeout("timeout", timeout)
        run = self._run
        if run is None:
            self._end = "stopped"
            return {}
        run.refuse_inherited()
        run.refuse_on_loop("stop")
        self._end = "stopped"
        if run.is_called_by_handler():
            run.draining.begin(timeout, tells=True)
            return {}
        run.draining.begin(timeout, tells=False)
        try:
            run.draining.wait_as_handler(run.call)
            is_drained = run.wait()
        finally:
            left = run.draining.take_left()
        if not is_drained:
            msg = f"a handler blocks the loop of LoopThread {self._name!r}: it goes on"
            raise BatchQueueError(msg)
        self._run = None
        if run.endings:
            raise run.endings[0]
        return left

    def __enter__(self) -> Self:
        if self._end == "left":
            self._end = None
        self._start(entered_by=threading.current_thread())
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        run = self._run
        if run is None:
            return
        try:
            run.refuse_inherited()
        except BatchQueueError as refused:
            logger.warning("%s", refused, loop_thread=self._name)
            return
        run.refuse_on_loop("leaving")
        self._end = self._end or "left"
        run.draining.begin(self._shutdown_timeout, tells=True)
        if run.is_called_by_handler():
            # As in `stop`: the handler's thread would wait for its own handler.
            return
        run.draining.wait_as_handler(run.call)
        if run.wait():
            self._run = None
        # A SystemExit or KeyboardInterrupt that leaves the block is not replaced.
        if run.endings and (error is None or isinstance(error, Exception)):
            raise run.endings[0]

    @property
    def portal(self) -> BlockingPortal:
        """Anyio's portal to the loop, to run anything else there.

        For instance queues that pass items on to each other: their handlers need the
        `BatchQueue` of the next one, which lives on the loop. At the end, once the
        queues are drained, what was started here may use the rest of the time.

        Raises:
            BatchQueueError: The thread does not run.
        """
        portal = self._running().portal
        assert portal is not None
        return portal

    def open(
        self,
        name: str,
        config: BatchQueueConfig[T] | None = None,
        handlers: Mapping[type[Any], HandlerLike[Any]] | None = None,
    ) -> SyncBatchQueue[T]:
        """Create a queue on the loop and start it, with these handlers by type.

        One with settings of its own is given to the queue's `add_handler` instead. The
        queue keeps the LoopThread alive.

        Raises:
            BatchQueueError: On the loop's own thread; or the thread does not run, or
                its loop is dead.
            DuplicateQueue: The name is taken.
            TypeError: An argument is wrong.
        """
        rule = "a mapping of types to handlers, or None"
        require_instance("handlers", handlers, (Mapping, type(None)), rule)
        run = self._running()
        run.refuse_on_loop("open")
        if run.draining.has_begun:
            msg = f"LoopThread {self._name!r} is being stopped"
            if at_exit.is_exiting():
                msg = f"the program ends: LoopThread {self._name!r} opens no queue"
            raise BatchQueueError(msg)

        async def opened() -> SyncBatchQueue[T]:
            queue = await run.manager.create(name, config)
            try:
                for item_type, handler in (handlers or {}).items():
                    queue.add_handler(item_type, handler)
                sync_queue = SyncBatchQueue(queue, patience=self._patience)
            except BaseException:
                await run.manager.shutdown(name)
                raise
            sync_queue.loop_thread = self
            at_exit.put_first(run)
            return sync_queue

        return run.call(opened, Context() if run.is_of_all else None)

    def flush(self, timeout: float | None = None) -> None:
        """Flush all queues that were opened here, the last opened first.

        So a chain, opened from its end to its start, is flushed through: see
        `BatchQueueManager.flush`.

        Args:
            timeout: Seconds to wait at most, for all together.

        Raises:
            DeliveryError: Items ended other than handled since the last flush here.
            TimeoutError: Not all was settled in time.
            BatchQueueError: On the loop's own thread; or the thread does not run, or
                its loop is dead.
            WouldDeadlock: A handler's thread would wait for its own handler.
            TypeError, ValueError: The timeout is invalid.
        """
        require_timeout("timeout", timeout)
        run = self._running()
        run.refuse_on_loop("flush")
        with reporting() as flushed:
            run.call(partial(settle_all, run.manager, timeout, flushed))

    def install_draining(
        self, signals: Iterable[signal.Signals], timeout: Timeout
    ) -> None:
        """Do what `drain_on_signals` promises; call that instead.

        The main thread unwinds by `SystemExit(128 + signal)` from wherever it is, so
        that `finally` blocks run. It waits for the draining where it leaves the
        `LoopThread`, or at the interpreter's exit; a second signal ends that wait.
        """
        if threading.current_thread() is not threading.main_thread():
            msg = "signals are handled by the main thread: call it there"
            raise RuntimeError(msg)
        if timeout is SHUTDOWN_TIMEOUT:
            timeout = self._shutdown_timeout
        handler = DrainOnSignal(self, timeout)
        for each in signals:
            handler.install(each)

    @property
    def _was_stopped(self) -> str:
        return f"LoopThread {self._name!r} was stopped: make another one"

    def _running(self) -> LoopRun:
        run = self._run
        if run is None:
            if self._end == "stopped":
                raise BatchQueueError(self._was_stopped)
            msg = (
                f"LoopThread {self._name!r} does not run: use it as "
                "`with LoopThread() as ...`, or start it"
            )
            raise BatchQueueError(msg)
        run.refuse_inherited()
        return run

    def _lock(self) -> threading.Lock:
        if self._process != os.getpid():
            # In a forked child: a thread that isn't here may have held the parent's.
            self._process = os.getpid()
            self._starting = threading.Lock()
        return self._starting


def start_for_caller(loop_thread: LoopThread) -> LoopRun:
    """Start it for this thread, as entering it does; not meant for users."""
    return loop_thread._start(entered_by=threading.current_thread())  # noqa: SLF001


def run_of(loop_thread: LoopThread) -> LoopRun | None:
    """Return its thread and loop while it runs; not meant for users."""
    return loop_thread._run  # noqa: SLF001
