"""Raises in the main thread, soon, what a hook can't: Python would only print it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import CodeType, FrameType


def raise_later(error: BaseException, hook: CodeType) -> None:
    """Have the main thread raise it once it has left the hook, which calls this.

    It is what a signal handler has raised there, so it comes as a signal does. Called
    by another thread it does nothing: those have no signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def strike(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        raise error

    before = signal.getsignal(signal.SIGINT)
    if before is not None:  # It would be C's, and could not be put back.
        signal.signal(signal.SIGINT, strike)
        threading.Thread(target=_interrupt, args=(hook,), daemon=True).start()


def _interrupt(hook: CodeType) -> None:
    main = threading.main_thread().ident
    assert main is not None
    while _is_in(hook, sys._current_frames().get(main)):  # noqa: SLF001
        time.sleep(0.0001)
    # It may sleep by now, and only a real signal wakes it.
    signal.pthread_kill(main, signal.SIGINT)


def _is_in(hook: CodeType, frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not hook:
        frame = frame.f_back
    return frame is not None
