"""Calls on threads of their own, with answers that can't be waited for in vain."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 30.0
"""Seconds after which a call counts as hanging."""


def in_background(
    call: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> "Future[R]":
    """Start the call on a new thread; the future has what it returned or raised."""
    answer: Future[R] = Future()

    def run() -> None:
        try:
            answer.set_result(call(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised where it is asked for
            answer.set_exception(error)

    threading.Thread(target=run, name="test", daemon=True).start()
    return answer


def answers(calls: "Iterable[Future[R]]", patience: float = PATIENCE) -> list[R]:
    """Return what all have returned, in order; raises what any has raised."""
    started = list(calls)
    end = time.monotonic() + patience
    return [each.result(max(0.0, end - time.monotonic())) for each in started]


async def answer_of(call: "Future[R]", patience: float = PATIENCE) -> R:
    """Await a call, for use on a loop."""
    async with asyncio.timeout(patience):
        return await asyncio.wrap_future(call)


async def all_answers(calls: "Iterable[Future[Any]]") -> list[Any]:
    return [await answer_of(each) for each in list(calls)]


def wait_until(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait on a thread until the condition holds; fail if it never does."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)


async def until(condition: Callable[[], object]) -> None:
    """Wait on a loop until the condition, which threads bring about, holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - threads have no asyncio.Event
            await asyncio.sleep(0.001)


class Stopwatch:
    """How long something took: `with Stopwatch() as watch: ...; watch.seconds`."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
