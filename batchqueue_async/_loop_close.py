"""Calls back when an event loop is closed: loops themselves have no hook for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_ATTRIBUTE = "_batchqueue_async_at_close"


def call_at_close(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have `call` called, once, as soon as the loop is closed."""
    calls: list[Callable[[], None]] | None = getattr(loop, _ATTRIBUTE, None)
    if calls is None:
        calls = []
        setattr(loop, _ATTRIBUTE, calls)
        vars(loop)["close"] = _closing(loop.close, calls)
    calls.append(call)


def forget_at_close(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Do not call it after all."""
    calls = getattr(loop, _ATTRIBUTE, [])
    if call in calls:
        calls.remove(call)
    if not calls and vars(loop).pop(_ATTRIBUTE, None) is not None:
        vars(loop).pop("close", None)


def _closing(
    close: Callable[[], None], calls: list[Callable[[], None]]
) -> Callable[[], None]:
    def close_and_call() -> None:
        close()
        while calls:
            calls.pop()()

    return close_and_call
