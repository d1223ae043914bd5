"""The loops of `real_time` tests, by the name that the test id shows."""

import asyncio
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def real_loops() -> dict[str, LoopFactory]:
    """asyncio's own loop and, where it is installed, uvloop."""
    loops: dict[str, LoopFactory] = {"asyncio": _AsyncioLoop}
    if importlib.util.find_spec("uvloop") is not None:
        loops["uvloop"] = _new_uvloop
    return loops


def is_second_loop(item: pytest.Item) -> bool:
    """Whether the test is on uvloop, and runs on another loop, too."""
    call = getattr(item, "callspec", None)
    if call is None or _new_uvloop not in call.params.values():
        return False
    asked = item.get_closest_marker("asyncio")
    loops = asked.kwargs.get("loop_factories") if asked is not None else None
    return loops is None or len(loops) > 1


class _AsyncioLoop(asyncio.SelectorEventLoop):
    def get_debug(self) -> bool:
        """As in `VirtualTimeLoop`."""
        return False


def _new_uvloop() -> asyncio.AbstractEventLoop:
    import uvloop  # noqa: PLC0415  # not to be had on Windows

    class Loop(uvloop.Loop):
        def set_debug(self, enabled: bool) -> None:  # noqa: FBT001  # asyncio's
            """Stay without: its checks take a stack each, asyncio's loop does them."""

    loop = Loop()
    loop.set_exception_handler(_stop_at_timeout)
    return loop


def _stop_at_timeout(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # pytest-timeout raises from a signal handler. uvloop takes that for a failed
    # callback and runs on; asyncio's loop lets it through.
    loop.default_exception_handler(context)
    if isinstance(context.get("exception"), pytest.fail.Exception):
        loop.stop()
