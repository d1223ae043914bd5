"""One turn of the loop, for all others."""

from __future__ import annotations

from collections.abc import Generator
from types import coroutine


@coroutine
def turn() -> Generator[None, None, None]:
    """Let everybody else run who is ready: `asyncio.sleep(0)`, at half its price."""
    yield
