"""Checks what a call has returned: something that is still to run, or to be awaited.

What it was made for must not count as done then.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from types import CoroutineType
from typing import Any, Final, NoReturn, TypeGuard

from batchqueue_async._functions import name_of
from batchqueue_async._wording import kind_of

_LAZY: Final = (map, filter)
"""Iterators that call a function, once somebody asks them for its results."""
_DATA: Final = frozenset((bool, bytes, dict, float, int, list, str, tuple))
"""What drivers answer with: to ask whether it is work takes a microsecond a batch."""


def runs_later(result: object) -> bool:
    """Whether a call has only made what somebody would have to run, or wait for."""
    return inspect.isawaitable(result) or is_generated(result) or not _is_done(result)


def is_generated(result: object) -> bool:
    """Whether a call has only made a generator, of which nothing has run.

    Not `inspect.isgenerator`, which does not know those of compiled code (Cython's).
    """
    return isinstance(result, Generator | AsyncGenerator)


def require_done(result: object) -> None:
    """Refuse what a function returned that is neither async nor a generator function.

    That is to say `map(send, batch)`, which sends nothing, and the future of a thread
    pool, for which nobody waits.
    """
    if not _is_done(result):
        what = kind_of(result)
        msg = f"a handler must do its work before it returns, got {what} as its result"
        raise TypeError(msg)


async def await_returned(result: object) -> None:
    """Await the future that an async function has returned in place of awaiting it.

    It runs by itself. Whatever nobody runs is refused: `await` was forgotten.
    """
    while is_future(result):
        result = await result
    if result is not None:
        _require_run(result)


def is_future(result: object) -> TypeGuard[asyncio.Future[object]]:
    """Whether a call has returned a future, or a task, of asyncio's."""
    # By its type: any other object may do anything when it is asked for its class.
    return issubclass(type(result), asyncio.Future)


def _require_run(result: Any) -> None:  # noqa: ANN401 - looked at by its type
    kind = type(result)
    if kind in _DATA:
        return
    if issubclass(kind, Coroutine):
        # One that is like a coroutine, as aiohttp's requests and what Cython compiles
        # are, does not say whether it has begun; but nobody returns one that has.
        is_like_one = kind is not CoroutineType
        if is_like_one or inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
            result.close()
            _refuse(f"the coroutine {name_of(result)}", "nothing runs")
    elif issubclass(kind, Awaitable):
        # What begins when it is awaited, as queries of some drivers do, or a future of
        # another library's.
        if not (hasattr(kind, "done") and result.done()):
            _refuse(kind_of(result), "nobody awaits")
    elif issubclass(kind, Generator | AsyncGenerator) or not _is_done(result):
        _refuse(kind_of(result), "nobody runs, or waits for")


def _is_done(result: Any) -> bool:  # noqa: ANN401 - looked at by its type
    kind = type(result)
    # A future of a pool of threads or processes, whoever's it is.
    is_future = hasattr(kind, "add_done_callback") and hasattr(kind, "done")
    return kind not in _LAZY and not (is_future and not result.done())


def _refuse(what: str, why: str) -> NoReturn:
    msg = (
        f"an async handler must await what it calls, got {what} as its result,"
        f" which {why}"
    )
    raise TypeError(msg)
