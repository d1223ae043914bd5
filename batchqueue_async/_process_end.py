"""What is to be told when a process of `multiprocessing` ends, as `atexit` does it.

Such a process has none: what was registered before its fork is taken away from it, and
before Python 3.13 it ends without.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

# Of which process each is known to be called at its end: a fork begins anew.
_known: dict[Callable[[], None], int] = {}


class LastThread(threading.Thread):
    """One that waits for all others to end; these must not wait for it."""


def has_no_atexit() -> bool:
    """Whether the process is one of `multiprocessing`, which takes all of it away."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def call_at_multiprocessing_end(call: Callable[[], None]) -> None:
    """Have it called, once, at the end of such a process; of others `atexit` has it.

    Before what `call` may use is ended, such as a `multiprocessing.Queue`; but after
    the threads that the process waits for, whose loops go on until then.
    """
    if not has_no_atexit() or _known.get(call) == os.getpid():
        return
    from multiprocessing.util import Finalize  # noqa: PLC0415 - few programs need it

    _known[call] = os.getpid()
    # Below the priority of what drains, above that of whatever else there is.
    Finalize(None, _call_after_threads, (call,), exitpriority=90)


def other_threads() -> list[threading.Thread]:
    """Return those that the end of the process waits for."""
    beside = (threading.current_thread(), threading.main_thread())
    return [
        each
        for each in threading.enumerate()
        if not (each.daemon or each in beside or isinstance(each, LastThread))
    ]


def _call_after_threads(call: Callable[[], None]) -> None:
    if not other_threads():
        call()
        return

    def wait() -> None:
        # Until it waits for its threads: by then what drains has begun, or its thread.
        threading.main_thread().join()
        while others := other_threads():
            for each in others:
                each.join()
        call()

    LastThread(target=wait, name="batchqueue end", daemon=False).start()
