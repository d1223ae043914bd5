"""One process with a copy of a handler, and the thread's end of the pipe to it."""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any, Final

from batchqueue_async._bridge.at_exit import drain_before_multiprocessing_ends
from batchqueue_async._functions import attribute_of, taker_of
from batchqueue_async._policies.errors import BatchQueueError, ProcessDied
from batchqueue_async._results import runs_later
from batchqueue_async._threads.clock import monotonic
from batchqueue_async._wording import add_note, kind_of, reason

if TYPE_CHECKING:
    from multiprocessing.popen_spawn_posix import Popen
    from multiprocessing.process import BaseProcess

_SPAWN: Final = multiprocessing.get_context("spawn")
_PATIENCE: Final = 5.0
"""Seconds that a process has to end after it was told to."""
_LOOK_AGAIN: Final = 0.02
"""Seconds until it is asked again whether it has ended, if nothing else tells."""
_PARENTS: Final = {
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
}
"""Signals that a terminal or a service manager sends to all processes of a program."""
_pipes: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_pipes() -> None:
    # In a forked child they would keep the parent's processes from learning of its end.
    for pipe in list(_pipes):
        pipe.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_pipes)


class HandlerProcess:
    """A spawned process: nothing of this one is in it but what it is sent.

    It ends by itself when its pipe is closed, so also if this process is killed. One
    call at a time.
    """

    def __init__(self, label: str, pickled: bytes) -> None:
        self._label = label
        self._pipe, theirs = _SPAWN.Pipe()
        _pipes.add(self._pipe)
        # A daemon: if all else fails the interpreter's exit ends it.
        self._process = _Process(
            target=_serve, args=(theirs, pickled), name=label, daemon=True
        )
        drain_before_multiprocessing_ends()
        try:
            self._process.start()
        finally:
            theirs.close()
        # Whether it may be called: it has not died, nor was it killed or ended.
        self.is_alive = True
        end = weakref.finalize(self, _end, self._pipe, self._process, os.getpid())
        end.atexit = False
        self._end = end

    def call(self, name: str, *arguments: object) -> None:
        """Call a method of the handler, and wait until it has returned.

        Raises:
            BaseException: What the handler raised.
            ProcessDied: The process has ended instead.
            TypeError: The arguments can't be pickled.
        """
        try:
            message = pickle.dumps((name, arguments))
        except Exception as error:
            msg = (
                f"{self._label}: items must be picklable to be handled in a process: "
                f"{reason(error)}"
            )
            raise TypeError(msg) from error
        try:
            self._pipe.send_bytes(message)
            # Waits for the process, too: if it dies, a process that was forked from
            # this one, as it was started, may still hold the pipe open.
            wait([self._pipe, self._process.sentinel])
            if not self._pipe.poll():
                raise EOFError  # noqa: TRY301
            answer = self._pipe.recv_bytes()
        except OSError as error:
            raise self._died() from error
        except EOFError:
            raise self._died() from None
        raised: BaseException | None = pickle.loads(answer)
        if raised is not None:
            raise raised

    def has_died(self) -> bool:
        """Whether it has ended by itself, between two calls."""
        # Without a call nothing comes by the pipe but its end.
        return bool(wait([self._pipe, self._process.sentinel], timeout=0))

    def kill(self) -> None:
        """Stop what it does now; any thread may ask for it."""
        # First: its answer may be here already, and it must not get another call.
        self.is_alive = False
        with contextlib.suppress(ValueError):
            # Raised if the process was ended and closed meanwhile.
            self._process.kill()

    def end(self) -> None:
        self.is_alive = False
        self._end()

    def _died(self) -> ProcessDied:
        self.is_alive = False
        code = _exit_code(self._process)
        self._end()
        return ProcessDied(f"{self._label}: its process died ({_how(code)})")


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        # Real-time signals have no names but those of the first and the last.
        return f"signal {-code}"


def _end(pipe: Connection, process: SpawnProcess, owner: int) -> None:
    pipe.close()
    if owner != os.getpid():
        # This is a forked child; the process belongs to its parent.
        return
    if _exit_code(process) is None:
        process.kill()
        _exit_code(process)
    # Raised if another thread, at the interpreter's exit, has learnt of its end first.
    with contextlib.suppress(ValueError):
        process.close()


def _exit_code(process: SpawnProcess) -> int | None:
    """Wait until it has ended; None if it does not, or another has asked before."""
    # Not `join` alone, which waits for the sentinel: a program that the process has
    # started may hold that open.
    until = monotonic() + _PATIENCE
    while process.exitcode is None and monotonic() < until:
        if wait([process.sentinel], _LOOK_AGAIN):
            process.join(_PATIENCE)
            break
    return process.exitcode


class _Process(SpawnProcess):
    """One that the signals of `_PARENTS` never end, not even while it starts."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Popen:  # noqa: N802 - multiprocessing's
        with _blocked(_PARENTS):
            popen = SpawnProcess._Popen(process_obj)  # noqa: SLF001 - as it says itself
        # The interpreter's exit calls it for daemons. SIGTERM would do nothing here.
        popen.terminate = popen.kill  # type: ignore[method-assign]
        return popen


@contextlib.contextmanager
def _blocked(signals: set[signal.Signals]) -> Iterator[None]:
    """Let none of them reach this thread; what it starts inherits that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # The resource tracker is started here, before signals are blocked: starting the
    # process would start it otherwise, and that unblocks them.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- in the process


def _serve(pipe: Connection, pickled: bytes) -> None:
    _leave_signals_to_parent()
    _keep_to_itself(pipe)
    handler = _Handler(pickled)
    while True:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            handler.call(message)
            answer = pickle.dumps(None)
        except BaseException as error:
            if pipe.closed:
                # The handler has forked; this is the child, which ends by its error.
                raise
            answer = _told(error)
        try:
            pipe.send_bytes(answer)
        except OSError:
            return


def _keep_to_itself(pipe: Connection) -> None:
    """Let nothing that the handler starts or forks have the pipe.

    It would hold it open after this process has died, or answer in its place.
    """
    if hasattr(os, "register_at_fork"):  # Windows inherits nothing by itself.
        os.set_inheritable(pipe.fileno(), False)  # noqa: FBT003 - the system's call
        os.register_at_fork(after_in_child=pipe.close)


def _leave_signals_to_parent() -> None:
    # SIGINT is ignored. The others aren't: programs that the handler runs would inherit
    # that, and could not be ended by these signals.
    for each in _PARENTS:
        signal.signal(each, _end_with_parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PARENTS)


def _end_with_parent(number: int, _: object) -> None:
    """Go on for as long as the parent takes to drain; if it has ended, no longer."""

    def end() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
        os._exit(128 + number)

    # Raised while this process ends, where no thread can be started, nor is needed.
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=end, daemon=True).start()


class _Handler:
    """The copy, from its first batch on."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled
        self._handler: Any = None
        self._is_open = False

    def call(self, message: bytes) -> None:
        if self._handler is None:
            self._handler = pickle.loads(self._pickled)
        name, arguments = pickle.loads(message)
        if name == "consume":
            if not self._is_open:
                on_open = attribute_of(self._handler, "on_open")
                # None where a subclass has turned it off.
                if callable(on_open):
                    on_open()
                self._is_open = True
            result = taker_of(self._handler)(*arguments)
        elif self._is_open:
            result = getattr(self._handler, name)(*arguments)
        else:
            return
        if runs_later(result):
            if inspect.iscoroutine(result):
                result.close()
            told = kind_of(result)
            msg = f"handler must be blocking to run in a process, it returned {told}"
            raise TypeError(msg)


def _told(error: BaseException) -> bytes:
    """Return the error for the parent, with the traceback as a note."""
    trace = traceback.format_exc()
    for name in ("__traceback__", "__cause__", "__context__"):
        # Bypasses a `__setattr__` of the class, such as a frozen dataclass has.
        vars(BaseException)[name].__set__(error, None)
    add_note(error, f"in the process:\n{trace}")
    try:
        told = pickle.dumps(error)
        # Tried here: what can't be unpickled would raise in the parent; None, which an
        # odd class may come back as, would mean success.
        is_error = isinstance(pickle.loads(told), BaseException)
    except Exception:  # noqa: BLE001 - a user's class may do anything
        is_error = False
    if not is_error:
        other = BatchQueueError(f"the handler raised {reason(error)}")
        other.add_note(f"in the process:\n{trace}")
        told = pickle.dumps(other)
    # Where it is closed or None, the error is told all the same.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()
    return told
