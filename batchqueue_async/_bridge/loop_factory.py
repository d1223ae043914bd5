"""Which kind of loop a thread of ours runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes uvloop's loops; None where asyncio's own are to be used."""
    import importlib.util  # noqa: PLC0415 - slow to import, and rarely needed

    if importlib.util.find_spec("uvloop") is None or _lacks_standard_files():
        return None
    try:
        import uvloop  # noqa: PLC0415 - an extra

        new_event_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    except (ImportError, AttributeError) as error:
        # A forked child has only half of a module that another thread was importing.
        msg = (
            f"uvloop is installed and can't be imported ({error}); if this process was "
            "forked while a thread was importing it, import uvloop before you fork"
        )
        raise ImportError(msg) from error
    return new_event_loop


@contextlib.contextmanager
def unsaid() -> Iterator[None]:
    """Make a loop without the line at DEBUG in which asyncio says its selector.

    Whoever starts the thread waits for the loop, perhaps within a `logging.Handler`
    that feeds its queue: the line would wait for that one's lock, for ever.
    """
    log, ours = logging.getLogger("asyncio"), threading.get_ident()

    def is_of_others(_: logging.LogRecord) -> bool:
        return threading.get_ident() != ours

    log.addFilter(is_of_others)
    try:
        yield
    finally:
        log.removeFilter(is_of_others)


def _lacks_standard_files() -> bool:
    """Whether 0, 1 or 2 is closed, or was as Python started, as in a daemon.

    What uvloop opens may get that number then, and libuv aborts a process that has it
    close one of these.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            return True
    return None in (sys.__stdin__, sys.__stdout__, sys.__stderr__)
