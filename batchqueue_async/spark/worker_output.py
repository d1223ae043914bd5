"""Rows go to Spark as soon as a task has them, not with the next 64 KiB.

A Python worker writes a task's rows into a buffer, and Spark sees them when that is
full. Of a task whose rows take a while, Spark would get none for minutes. And the task
would not notice that Spark wants no more, after a `limit` or `show`, before it has made
a buffer of rows in vain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

# The arguments of the `main` in PySpark's worker, with a daemon or without.
_MAIN = ("infile", "outfile")


def worker_flush() -> Callable[[], object]:
    """Return what has the worker's output written, called in a task of Spark's.

    Spark has no public way to its output, so it is looked for in the callers. Where
    there is none, as in a test, nothing is done.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - `inspect` is slow
    while frame is not None:
        code = frame.f_code
        if code.co_varnames[: code.co_argcount] == _MAIN:
            flush: object = getattr(frame.f_locals["outfile"], "flush", None)
            if callable(flush):
                return flush
        frame = frame.f_back
    return lambda: None
