"""What is to be told when a process of `multiprocessing` ends, as `atexit` does it.

Such a process has none: what was registered before its fork is taken away from it, and
before Python 3.13 it ends without.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

# Of which process each is known to be called at its end: a fork begins anew.
_known: dict[Callable[[], None], int] = {}
# What was registered while the process imported its program.
_imported: list[Callable[[], None]] = []


class LastThread(threading.Thread):
    """One that waits for all others to end; these must not wait for it."""


def has_no_atexit() -> bool:
    """Whether the process is one of `multiprocessing`, which takes all of it away."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def is_importing() -> bool:
    """Whether it is a process of `multiprocessing` that imports its program.

    One that was spawned, or comes from a fork server; it has no parent until then.
    """
    process = sys.modules.get("multiprocessing.process")
    return process is not None and hasattr(process.current_process(), "_inheriting")


def call_as_it_begins(call: Callable[[], None]) -> None:
    """Have it called after the import, if what the end was to call is forgotten then.

    So it is in a process of a fork server. `call` has to be kept by its module.
    """
    from multiprocessing.util import register_after_fork  # noqa: PLC0415 - as below

    register_after_fork(call, lambda call: call())


def call_at_multiprocessing_end(call: Callable[[], None]) -> None:
    """Have it called, once, at the end of such a process; of others `atexit` has it.

    Before what `call` may use is ended, such as a `multiprocessing.Queue`; but after
    the threads that the process waits for, whose loops go on until then.
    """
    if _known.get(call) == os.getpid() or not (has_no_atexit() or is_importing()):
        return
    from multiprocessing.util import Finalize  # noqa: PLC0415 - few programs need it

    if is_importing():
        _imported.append(call)
        call_as_it_begins(_call_imported_at_end)
    _known[call] = os.getpid()
    main = threading.main_thread()
    if threading.current_thread() is not main and not main.is_alive():
        # The process waits for a thread still; what it calls at its end is over.
        with contextlib.suppress(RuntimeError):  # no thread can start: it has `atexit`
            _start_last_thread(call)
        return
    # Below the priority of what drains, above that of whatever else there is.
    Finalize(None, _call_after_threads, (call,), exitpriority=90)


def _call_imported_at_end() -> None:
    while _imported:
        call = _imported.pop()
        _known.pop(call, None)
        call_at_multiprocessing_end(call)


def other_threads() -> list[threading.Thread]:
    """Return those that the end of the process waits for."""
    beside = (threading.current_thread(), threading.main_thread())
    return [
        each
        for each in threading.enumerate()
        if not (each.daemon or each in beside or isinstance(each, LastThread))
    ]


def _call_after_threads(call: Callable[[], None]) -> None:
    if other_threads():
        _start_last_thread(call)
    else:
        _call_last(call)


def _start_last_thread(call: Callable[[], None]) -> None:
    # Until the main thread waits for its threads: by then what drains has begun, or its
    # thread. The thread that starts this one may be one that others don't wait for.
    first = [threading.main_thread(), threading.current_thread()]

    def wait() -> None:
        for each in first:
            if not each.daemon:
                each.join()
        while others := other_threads():
            for each in others:
                each.join()
        _call_last(call)

    LastThread(target=wait, name="batchqueue end", daemon=False).start()


def _call_last(call: Callable[[], None]) -> None:
    # First: what is begun from here on is to be told, too.
    _known.pop(call, None)
    call()
