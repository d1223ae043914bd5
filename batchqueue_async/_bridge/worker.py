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
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

# Private, but it is all that makes `anyio.from_thread` work in a thread that anyio has
# not started.
from anyio._core._eventloop import claim_worker_thread, get_async_backend

from batchqueue_async._bridge import fork_rest
from batchqueue_async._bridge.fork_rest import Rest

R = TypeVar("R")

# How long a fork waits for a call to end. Most calls do not: they wait for a server,
# and hold no lock by that.
_REST_WITHIN = 0.2


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


_Calls: TypeAlias = "SimpleQueue[_Call | Rest | None]"


class Worker:
    """The thread. A daemon, since a call that never returns must not hold up an exit.

    Raises:
        RuntimeError: No thread can be started.
    """

    def __init__(self, name: str) -> None:
        self._calls: _Calls = SimpleQueue()
        thread = _Thread(self._calls)
        threading.Thread(target=thread.serve, name=name, daemon=True).start()

    async def run(self, function: Callable[[], R]) -> R:
        """Run a function, which must not raise, on the thread, in this context."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._calls.put(_Call(copy_context(), function, answer))
        return await answer

    def end(self) -> None:
        """Let the thread end after the calls that it has got."""
        self._calls.put(None)


class _Thread:
    """What runs on it. It knows only its calls, so that it keeps no handler alive."""

    def __init__(self, calls: _Calls) -> None:
        self.ident: int | None = None
        self._calls = calls

    def serve(self) -> None:
        self.ident = threading.get_ident()
        fork_rest.remember(self)
        try:
            while (call := self._calls.get()) is not None:
                call.run()
                del call
        finally:
            fork_rest.forget(self)

    def rest(self, rest: Rest) -> Callable[[], None]:
        self._calls.put(rest)
        return partial(rest.reached.wait, _REST_WITHIN)


def _tell(answer: asyncio.Future[Any], result: object) -> None:
    if not answer.done():
        answer.set_result(result)
