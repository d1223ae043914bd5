"""Waits that mean the same in virtual time and on uvloop."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], patience: float = 30.0) -> None:
    """Let the loop run until the condition holds; fail if it never does."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    while not condition():
        assert loop.time() < end, "it never happened"
        await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Let the loop turn so often: enough for whatever needs no timer."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until_soon(condition: Callable[[], object], most: int = 10_000) -> None:
    """The same under a load that never pauses: there, virtual time stands still."""
    for _ in range(most):
        if condition():
            return
        await asyncio.sleep(0)
    message = f"it has not happened in {most} turns of the loop"
    raise AssertionError(message)
