"""One queue, with its loop thread, per process: also where processes are forked."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Container, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from batchqueue_async._bridge.at_exit import is_exiting
from batchqueue_async._bridge.loop_run import starter_of_this_thread
from batchqueue_async._bridge.loop_thread import LoopThread, run_of, start_for_caller
from batchqueue_async._bridge.sync_queue import SyncBatchQueue
from batchqueue_async._engine.handlers.handler_lock_and_call import current_call
from batchqueue_async._policies.errors import BatchQueueError, WouldDeadlock
from batchqueue_async._validation import (
    refuse,
    require_callable,
    require_instance,
    require_iterable,
)
from batchqueue_async._wording import shown

T = TypeVar("T")

OpenQueue: TypeAlias = Callable[[LoopThread], SyncBatchQueue[T]]
"""Opens a queue on a loop thread that runs: `return loop_thread.open(...)`."""


class _Opened(NamedTuple):
    open_queue: OpenQueue[Any]
    loop_thread: LoopThread
    queue: SyncBatchQueue[Any]

    def refuse_on_its_loop(self) -> None:
        """Refuse to close it on its own loop's thread, which would wait for itself."""
        if (run := run_of(self.loop_thread)) is not None:
            run.refuse_on_loop("leaving")

    def close(self) -> bool:
        """Close it; returns False if a handler only begins to."""
        run = run_of(self.loop_thread)
        try:
            self.loop_thread.__exit__(None, None, None)
        except WouldDeadlock:
            # It goes on, and so does the closing of the others.
            return False
        return run is None or not run.is_called_by_handler()


class _Registry:
    """What this process has opened; a forked child starts with an empty one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # For the registry's fields; whoever holds it waits for nothing else. All locks
        # here are reentrant: `open_queue` may call `process_queue` for another queue.
        self.lock = threading.RLock()
        self.opened: dict[OpenQueue[Any], _Opened] = {}
        # Who opens a queue now.
        self.openers: dict[OpenQueue[Any], threading.Thread] = {}
        # A lock for each queue that is being opened, not one for all: the first log
        # line of a loop that starts may open another queue, on that loop's thread.
        self._own_locks: WeakValueDictionary[OpenQueue[Any], Any]
        self._own_locks = WeakValueDictionary()
        # Another one, in front of that, for who waits until one that was shut down has
        # ended, to open it anew. Its handlers may ask for it, or close all, and take
        # none of these: who holds one waits for them.
        self._end_locks: WeakValueDictionary[OpenQueue[Any], Any]
        self._end_locks = WeakValueDictionary()
        # What `close_process_queues` has closed, until its last call returns, or for
        # good at the interpreter's exit.
        self.closed: dict[OpenQueue[Any], SyncBatchQueue[Any]] = {}
        # What is no longer in `opened`, and not known to have ended: another call may
        # be waiting for it, have been interrupted, or only have begun, on a handler's
        # thread. Whoever closes waits for these, too: an `os._exit` may follow.
        self._ending: dict[LoopThread, _Opened] = {}
        self._closings = 0

    def begin_closing(self) -> None:
        with self.lock:
            self._closings += 1

    def end_closing(self) -> None:
        with self.lock:
            self._closings -= 1
            if not self._closings and not is_exiting():
                self.closed.clear()

    def closed_for_caller(
        self, open_queue: OpenQueue[Any]
    ) -> SyncBatchQueue[Any] | None:
        """Return the closed queue if this caller gets no new one; it refuses items.

        Who closes would have to close each new one, too: without an end, where threads
        that nobody waits for go on producing. Handlers get one, for what is drained.
        """
        if current_call() is not None:
            return None
        if not is_exiting():
            return self.closed.get(open_queue)
        # Threads that the exit waits for, and what `atexit` calls, get a new one.
        if not threading.current_thread().daemon:
            return None
        known = self.opened.get(open_queue)
        return self.closed.get(open_queue) if known is None else known.queue

    def closed_at_exit(
        self, open_queue: OpenQueue[Any], known: _Opened | None
    ) -> SyncBatchQueue[Any] | None:
        """Return the drained queue to what `atexit` calls when nothing starts any more.

        Not to a thread that outlives the main one: that may go on for hours, and is to
        see why.
        """
        main = threading.main_thread()
        if not is_exiting() or threading.current_thread() is not main:
            return None
        if known is not None:
            self.closed[open_queue] = known.queue
        return self.closed.get(open_queue)

    def refuse_to_opener(self, open_queue: OpenQueue[Any]) -> None:
        """Refuse to wait for a queue whose opener waits for this thread.

        What a thread collects as it starts may produce here, from a `__del__`.
        """
        starter = starter_of_this_thread()
        if starter is not None and self.openers.get(open_queue) is starter:
            msg = f"{shown(open_queue)} is opening its queue: it waits for this thread"
            raise BatchQueueError(msg)

    def own_lock(self, open_queue: OpenQueue[Any]) -> Any:  # noqa: ANN401 - an RLock
        """Return the lock under which this queue is opened."""
        with self.lock:
            return self._own_locks.setdefault(open_queue, threading.RLock())

    def end_lock(self, open_queue: OpenQueue[Any]) -> AbstractContextManager[Any]:
        """Return the lock under which one that was shut down is waited for."""
        if current_call() is not None:
            return nullcontext()
        with self.lock:
            lock: Any = self._end_locks.setdefault(open_queue, threading.RLock())
        return cast("AbstractContextManager[Any]", lock)

    def end_before(self, open_queue: OpenQueue[Any]) -> _Opened | None:
        """Close a queue that was shut down, and return it, if there is one."""
        with self.lock:
            known = self.opened.get(open_queue)
            if known is None or known.queue.is_running:
                return None
            known.refuse_on_its_loop()
            del self.opened[open_queue]
        known.close()
        return known

    def take_last(
        self, wanted: set[OpenQueue[Any]] | None, taken: Container[_Opened]
    ) -> _Opened | None:
        """Take what was opened last, of those wanted, to be closed.

        Then, once each and for no handler, what others have taken that has not ended.
        """
        with self.lock:
            ends = [] if current_call() else [*self._end_locks.items()]
            locks = [*ends, *self._own_locks.items()]
        for open_queue, each in locks:
            if wanted is None or open_queue in wanted:
                with each:  # waits while it is being opened, perhaps anew
                    pass
        with self.lock:
            # A handler waits for nobody else's: two of them would wait for each other.
            ending = [] if current_call() else [*self._ending.values()]
            left = [
                each
                for each in [*ending, *self.opened.values()]
                if (wanted is None or each.open_queue in wanted) and each not in taken
            ]
            if not left:
                return None
            opened = left[-1]
            opened.refuse_on_its_loop()
            self._ending[opened.loop_thread] = opened
            if self.opened.get(opened.open_queue) is opened:
                del self.opened[opened.open_queue]
                self.closed[opened.open_queue] = opened.queue
            return opened

    def has_ended(self, opened: _Opened) -> None:
        """Forget what was taken: nobody needs to wait for it any more."""
        self._ending.pop(opened.loop_thread, None)


_registry = _Registry()
_inherited: list[_Registry] = []


def process_queue(
    open_queue: OpenQueue[T], *, make_loop_thread: Callable[[], LoopThread] = LoopThread
) -> SyncBatchQueue[T]:
    """Return this process's queue for `open_queue`; the first call opens it.

    For programs whose processes are made by others: prefork servers, task queues,
    `multiprocessing`. Call it where items are produced, each time, on any thread. After
    a fork the child opens a queue of its own; the parent's isn't touched, and what
    waits in it is the parent's. A queue that was shut down is opened anew. While
    `close_process_queues` goes on only handlers have it opened anew, all others get the
    closed one, which accepts nothing; so do daemon threads once the interpreter exits.
    Handlers run in no context (`contextvars`) of the caller that happened to open it.

    It is drained when the interpreter exits, as each `LoopThread` is. A process that
    ends by `os._exit` must call `close_process_queues` before.

    Args:
        open_queue: Gets a `LoopThread` that runs, for this queue alone, and returns the
            queue that it opened there. Equal ones share a queue: pass a function of a
            module, or an object's method, not a new `lambda` or `partial` each time.
        make_loop_thread: Makes the `LoopThread`, for instance with another
            `shutdown_timeout`; asked by the call that opens the queue.

    Raises:
        TypeError: If `open_queue` can't be called or hashed, or returns no queue; or
            `make_loop_thread` can't be called, or returns no LoopThread.
        ValueError: If that queue is on another loop.
        BatchQueueError: If no thread can be started; or, on its own loop's thread, if
            the queue was shut down.
        Exception: What `open_queue` raises; nothing is kept then.
    """
    registry = _current()
    try:
        known = registry.opened.get(open_queue)
    except TypeError:
        require_callable("open_queue", open_queue)
        raise
    if known is not None and known.queue.is_running:
        return known.queue
    require_callable("open_queue", open_queue)
    require_callable("make_loop_thread", make_loop_thread)
    closed = registry.closed_for_caller(open_queue)
    if closed is not None:
        return closed
    registry.refuse_to_opener(open_queue)
    with registry.end_lock(open_queue):
        ended = registry.end_before(open_queue)
        with registry.own_lock(open_queue):
            if open_queue not in registry.opened:
                return _open_once(registry, open_queue, make_loop_thread, ended)
        # Another one has opened it anew; that may have been shut down since, too.
        return process_queue(open_queue, make_loop_thread=make_loop_thread)


def close_process_queues(open_queues: Iterable[OpenQueue[Any]] | None = None) -> None:
    """Shut this process's queues down, the last opened first: before an `os._exit`.

    Waits for each as leaving its `LoopThread` does: 30 seconds at most, unless that was
    made with another `shutdown_timeout`; what is left then is logged and passed to
    `on_error`. So it does with what another call closes meanwhile, or has begun to. In
    a forked child the parent's queues aren't touched. A handler of such a queue, on a
    thread, only begins to close that one, and waits for no other call's.

    Args:
        open_queues: Those whose queues are closed; None for all.

    Raises:
        BatchQueueError: On the loop's own thread of such a queue.
        TypeError: `open_queues` is none.
        SystemExit, KeyboardInterrupt: A handler has raised it.
    """
    if open_queues is not None:
        rule = "an iterable of what opens them, as in [open_rows], or None"
        require_iterable("open_queues", open_queues, rule)
    registry = _current()
    wanted = None if open_queues is None else set(open_queues)
    registry.begin_closing()
    try:
        # The lock is free meanwhile, since handlers may need it. What they open is
        # closed by a later round.
        taken: list[_Opened] = []
        while (opened := registry.take_last(wanted, taken)) is not None:
            taken.append(opened)
            if opened.close():
                registry.has_ended(opened)
    finally:
        registry.end_closing()


def _current() -> _Registry:
    # After a fork in Python the hook below has done it; a fork in C calls no hooks.
    if _registry.pid != os.getpid():
        _start_anew()
    return _registry


def _start_anew() -> None:
    # With a new lock: another thread may have held the old one during the fork.
    global _registry  # noqa: PLW0603  # one per process is the point
    # Kept alive: to end its LoopThreads would wait for threads that the child lacks.
    _inherited.append(_registry)
    _registry = _Registry()


def _open_once(
    registry: _Registry,
    open_queue: OpenQueue[T],
    make_loop_thread: Callable[[], LoopThread],
    known: _Opened | None,
) -> SyncBatchQueue[T]:
    before = registry.openers.get(open_queue)
    registry.openers[open_queue] = threading.current_thread()
    try:
        opened = _open(open_queue, make_loop_thread)
    except BatchQueueError:
        closed = registry.closed_at_exit(open_queue, known)
        if closed is None:
            raise
        return closed
    finally:
        if before is None:
            del registry.openers[open_queue]
    with registry.lock:
        inner = registry.opened.get(open_queue)
        if inner is None or not inner.queue.is_running:
            registry.opened[open_queue] = opened
            return opened.queue
    # A `__del__`, or a signal's handler, has opened it on this thread meanwhile.
    opened.close()
    return inner.queue


def _open(
    open_queue: OpenQueue[Any], make_loop_thread: Callable[[], LoopThread]
) -> _Opened:
    loop_thread = make_loop_thread()
    rule = "a LoopThread"
    require_instance("what make_loop_thread returns", loop_thread, LoopThread, rule)
    run = start_for_caller(loop_thread)
    # In no context of who comes first: a request's, with its span, would be that of
    # all handlers, and live as long as the process.
    run.is_of_all = True
    try:
        queue = _require_queue(open_queue(loop_thread))
        if not run.has(queue.queue):
            # It would not be closed with this loop thread, as before an `os._exit`.
            rule = "one that it opened on the LoopThread that it got"
            refuse("the queue of open_queue", rule, queue)
        if not is_exiting():
            # From now on it is of all threads. An exit that has begun in the meantime
            # has left it to this one.
            run.entered_by = None
        return _Opened(open_queue, loop_thread, queue)
    except BaseException:
        loop_thread.__exit__(None, None, None)
        raise


def _require_queue(queue: object) -> SyncBatchQueue[Any]:
    if not isinstance(queue, SyncBatchQueue):
        msg = f"open_queue must return a SyncBatchQueue, got {shown(queue)}"
        raise TypeError(msg)
    return queue


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
# A process that `multiprocessing` forks has no `atexit`; there `at_exit` drains.
atexit.register(close_process_queues)
