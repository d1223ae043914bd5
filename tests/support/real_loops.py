"""The loops of `real_time` tests, by the name that the test id shows."""

import asyncio
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def real_loops() -> dict[str, LoopFactory]:
    """asyncio's own loop and, where it is installed, uvloop."""
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop") is not None:
        loops["uvloop"] = _new_uvloop
    return loops


def _new_uvloop() -> asyncio.AbstractEventLoop:
    import uvloop  # noqa: PLC0415  # not to be had on Windows

    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_stop_at_timeout)
    return loop


def _stop_at_timeout(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # pytest-timeout raises from a signal handler. uvloop takes that for a failed
    # callback and runs on; asyncio's loop lets it through.
    loop.default_exception_handler(context)
    if isinstance(context.get("exception"), pytest.fail.Exception):
        loop.stop()
