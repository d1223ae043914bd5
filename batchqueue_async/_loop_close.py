"""Calls back when an event loop is closed: loops themselves have no hook for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class _Close:
    """Stands for a loop's `close` as long as somebody wants to be called."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self.calls: list[Callable[[], None]] = []

    def __call__(self) -> None:
        self._close()
        while self.calls:
            self.calls.pop()()


def call_at_close(
    loop: asyncio.AbstractEventLoop, call: Callable[[], None], *, is_last: bool = False
) -> None:
    """Have `call` called, once, as soon as the loop is closed.

    Args:
        loop: A loop that is not closed yet.
        call: What must not raise, unless it is the last.
        is_last: Whether those that were asked for before are called first.
    """
    close = loop.close
    if not isinstance(close, _Close):
        # As an attribute: a use of `vars(loop)` makes each of its attributes slower.
        loop.close = close = _Close(close)  # type: ignore[method-assign]
    if is_last:
        close.calls.insert(0, call)
    else:
        close.calls.append(call)


def forget_at_close(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Do not call it after all."""
    close = loop.close
    if isinstance(close, _Close):
        if call in close.calls:
            close.calls.remove(call)
        if not close.calls:
            del loop.close
