"""Runs a handler that computes in processes of its own, beside the loop's one core."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._bridge.in_thread import InThread, require_blocking
from batchqueue_async._functions import name_of
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._policies.handler_checks import HOOKS
from batchqueue_async._policies.handlers import BatchHandler, HandlerLike
from batchqueue_async._validation import require_int
from batchqueue_async._wording import reason, shown

if TYPE_CHECKING:
    from batchqueue_async._bridge.handler_process import HandlerProcess
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerLock

T = TypeVar("T")

_STDIN = "<stdin>"
"""The file of a program that comes from there, as by `python -`."""


def in_process(handler: HandlerLike[T], *, concurrency: int = 1) -> BatchHandler[T]:
    """Wrap a handler that computes, so that it runs in worker processes.

    Each process has a copy of the handler, which is sent to it by `pickle`, as each
    batch is: a function or a class of a module, and items of such classes. Processes
    are spawned, at the first batch that needs one, and end with the queue, or with the
    program. `on_open` is called in each of them before its first batch, the other hooks
    in all that are there.

    What the handler raises is raised here, with its traceback as a note; what cannot be
    pickled as a BatchQueueError. A handler that is cancelled (`handler_timeout`, the
    shutdown's deadline) is stopped: its process is killed. If a process dies the batch
    fails with `ProcessDied`, or is retried, and the next one gets a new process. In a
    daemonic process of `multiprocessing`, such as a Pool's, a queue with such a handler
    is refused with a BatchQueueError.

    Args:
        handler: An object with `consume(batch)`, or a function; not async.
        concurrency: How many processes there may be at most, as `in_thread` says of
            calls.

    Raises:
        TypeError: The handler is async, or no handler, or cannot be pickled, or is of a
            session or `-c`, not of a file, or of a package's `__main__.py`; or
            `concurrency` is no int.
        ValueError: `concurrency` is less than 1.
    """
    require_blocking(handler, "process")
    require_int("concurrency", concurrency, at_least=1)
    _require_imported(handler)
    name = name_of(handler)
    label = f"in_process({name})"
    processes = _Processes(handler, label, _pickled(handler))
    wrapped = _InProcess(processes, label, concurrency)
    wrapped.stop = processes.stop
    # If `on_close` was not called, the handler's last thread ends the processes.
    wrapped.last = processes.end
    return wrapped


class _InProcess(InThread):
    def new_lock(self) -> HandlerLock:
        # Refused when a queue gets the handler; otherwise each batch would fail.
        running = sys.modules.get("multiprocessing.process")
        if running is not None and running.current_process().daemon:
            msg = (
                f"{self.__qualname__} can't start processes in a daemonic process of "
                "multiprocessing, such as a Pool's: use it in the parent, or in "
                "processes that are no daemons"
            )
            raise BatchQueueError(msg)
        return super().new_lock()


def _require_imported(handler: object) -> None:
    if getattr(handler, "__module__", None) == "__main__" and not _is_main_imported():
        msg = (
            "handler must be of a module or a program's file to run in a process, "
            f"which imports it, got {shown(handler)} of a session, or of a package's "
            "__main__.py"
        )
        raise TypeError(msg)


def _is_main_imported() -> bool:
    """Whether `multiprocessing` has a process import what is `__main__` here."""
    spec = sys.modules["__main__"].__spec__
    if spec is not None:
        # Run by `-m`. `multiprocessing` imports a module, but not the __main__.py of a
        # package, a folder or an archive.
        return spec.name.rpartition(".")[2] != "__main__"
    return _main_file() is not None


def _main_file() -> str | None:
    file = getattr(sys.modules["__main__"], "__file__", None)
    return None if file == _STDIN else file


def _forget_stdin() -> None:
    """Have no process look for a program that Python reads from stdin: it would fail.

    Not for the moment alone: other threads may start processes meanwhile.
    """
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) == _STDIN:
        with suppress(AttributeError):
            del main.__file__


def _pickled(handler: object) -> bytes:
    # Late, since its import takes 10 ms, for programs that have no `in_process`.
    import pickle  # noqa: PLC0415

    try:
        return pickle.dumps(handler)
    except Exception as error:
        msg = (
            "handler must be picklable to run in a process, a function or an object "
            f"of a module's class, got {shown(handler)}: {reason(error)}"
        )
        raise TypeError(msg) from error


class _Processes:
    """A handler that blocks its thread until one of its processes has answered."""

    def __init__(self, handler: object, label: str, pickled: bytes) -> None:
        self._label = label
        self._pickled = pickled
        self._main_file = _main_file()
        self._forget()
        if hasattr(handler, "tick_every"):
            self.tick_every = handler.tick_every
        hooks = {each for each in HOOKS if callable(getattr(handler, each, None))}
        for name in hooks - {"on_open", "on_close"}:
            setattr(self, name, partial(self._all, name))
        self._has_on_close = "on_close" in hooks

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[HandlerProcess] = []
        # By the thread that works with the process; None while it has none.
        self._busy: dict[int, HandlerProcess | None] = {}
        # Those of these threads that were to be stopped.
        self._stopped: set[int] = set()

    def _forget_parent(self) -> None:
        if self._owner != os.getpid():
            # After a fork: these are the parent's.
            self._forget()

    def consume(self, batch: list[Any]) -> None:
        # Not `with`: a generator's context manager sets an attribute of the error that
        # passes it, which a frozen dataclass refuses.
        self._begin_work()
        try:
            self._call(self._take_living(), "consume", batch)
        finally:
            self._end_work()

    def on_close(self) -> None:
        """Let the handler close in each process, and end that."""
        try:
            if self._has_on_close:
                self._all("on_close")
        finally:
            self.end()

    def end(self) -> None:
        """End all processes that are not at work, and wait until they have."""
        for process in iter(self._take, None):
            process.end()

    def stop(self, thread: int) -> None:
        self._forget_parent()
        # Under the lock: afterwards its process may have another thread's call.
        with self._lock:
            if thread in self._busy:
                self._stopped.add(thread)
            if (process := self._busy.get(thread)) is not None:
                process.kill()

    def _begin_work(self) -> None:
        self._forget_parent()
        self._busy[threading.get_ident()] = None

    def _end_work(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            del self._busy[thread]
            self._stopped.discard(thread)

    def _all(self, hook: str) -> None:
        """Call a hook in each process; raises the first error when all were called.

        Once it is stopped the others are not called.
        """
        errors: list[BaseException] = []
        thread = threading.get_ident()
        self._begin_work()
        try:
            processes = [*iter(self._take, None)]
            while processes and thread not in self._stopped:
                try:
                    self._call(processes.pop(), hook)
                except BaseException as error:  # noqa: BLE001 - the others come first
                    errors.append(error)
            with self._lock:
                self._idle += processes
        finally:
            self._end_work()
        if errors:
            raise errors[0]

    def _take(self) -> HandlerProcess | None:
        self._forget_parent()
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _take_living(self) -> HandlerProcess:
        while (process := self._take()) is not None:
            if not process.has_died():
                return process
            process.end()
        from batchqueue_async._bridge.handler_process import (  # noqa: PLC0415
            HandlerProcess,
        )

        if self._main_file is not None and _main_file() is None:
            # The interpreter's exit has removed it; the new process needs it to import.
            sys.modules["__main__"].__file__ = self._main_file
        _forget_stdin()
        return HandlerProcess(self._label, self._pickled)

    def _call(self, process: HandlerProcess, name: str, *arguments: object) -> None:
        """Call a method in this process, which is free afterwards."""
        thread = threading.get_ident()
        with self._lock:
            self._busy[thread] = process
            if thread in self._stopped:
                process.kill()
        try:
            process.call(name, *arguments)
        finally:
            with self._lock:
                self._busy[thread] = None
                if process.is_alive:
                    self._idle.append(process)
            if not process.is_alive:
                process.end()
