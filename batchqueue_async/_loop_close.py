"""What is to happen when an event loop is closed: loops themselves have no hook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any


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
        call: It must not raise, unless it is the last.
        is_last: Whether all calls that were registered before come first.
    """
    close = loop.close
    if not isinstance(close, _Close):
        # Set as an attribute: using `vars(loop)` makes all its attributes slower.
        loop.close = close = _Close(close)  # type: ignore[method-assign]
    if is_last:
        close.calls.insert(0, call)
    else:
        close.calls.append(call)


def forget_at_close(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Take back what `call_at_close` has registered."""
    close = loop.close
    if isinstance(close, _Close):
        if call in close.calls:
            close.calls.remove(call)
        if not close.calls:
            del loop.close


def expect_no_end(task: asyncio.Task[Any]) -> None:
    """Keep asyncio from complaining if the loop ends first: somebody else tells."""
    with suppress(AttributeError):
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
