"""Refuses to begin where no asyncio loop runs: on a plain thread, or under Trio."""

from __future__ import annotations

import asyncio


def running_loop(what: str) -> asyncio.AbstractEventLoop:
    """Return the running loop.

    Raises:
        RuntimeError: There is none; the message says that `what` needs it.
    """
    # Not `get_running_loop`: its error only says that there is none.
    loop = asyncio._get_running_loop()  # noqa: SLF001
    if loop is None:
        msg = (
            f"{what} needs a running asyncio event loop, and here is none: use "
            "asyncio.run, or, on threads and under Trio, a LoopThread"
        )
        raise RuntimeError(msg)
    return loop
