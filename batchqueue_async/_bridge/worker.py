"""A thread that runs one call after the other, for a handler that blocks.

It is kept ready from the start: at the interpreter's exit, where a `LoopThread` still
drains, Python 3.12 and later start no thread any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

# Private, but it is all that makes `anyio.from_thread` work in a thread that anyio has
# not started.
from anyio._core._eventloop import claim_worker_thread, get_async_backend

R = TypeVar("R")


@dataclass(slots=True)
class _Call:
    """One call, and the future on whose loop its result is wanted."""

    context: Context
    function: Callable[[], Any]
    answer: asyncio.Future[Any]

    def run(self) -> None:
        loop = self.answer.get_loop()
        with claim_worker_thread(get_async_backend("asyncio"), loop):
            result = self.context.run(self.function)
        # Of a loop that is closed nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_tell, self.answer, result)


_Calls: TypeAlias = "SimpleQueue[_Call | None]"


class Worker:
    """The thread. A daemon, since a call that never returns must not hold up an exit.

    Raises:
        RuntimeError: No thread can be started.
    """

    def __init__(self, name: str) -> None:
        self._calls: _Calls = SimpleQueue()
        threading.Thread(
            target=_serve, args=(self._calls,), name=name, daemon=True
        ).start()

    async def run(self, function: Callable[[], R]) -> R:
        """Run a function, which must not raise, on the thread, in this context."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._calls.put(_Call(copy_context(), function, answer))
        return await answer

    def end(self) -> None:
        """Let the thread end after the calls that it has got."""
        self._calls.put(None)


def _serve(calls: _Calls) -> None:
    # It knows nothing but its calls, so that it keeps no handler alive.
    while (call := calls.get()) is not None:
        call.run()
        del call


def _tell(answer: asyncio.Future[Any], result: object) -> None:
    if not answer.done():
        answer.set_result(result)
