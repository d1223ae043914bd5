"""What sweeps of strikes share: an exception, quiet in between, a loop that runs on."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

R = TypeVar("R")

OUT_OF_REACH = "Asleep.add_done_callback"
"""Called by asyncio's own C code, which forgets a task whose future raises there."""

USER = "user"
"""The name of the task that `drive` runs."""


class Struck(Exception):
    """As from a SIGALRM's handler: a drain task survives it."""


@pytest.fixture
def quiet() -> Iterator[None]:
    """Neither log lines nor finalizers of other queues in between."""
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


SWEEP = [
    # It may strike between a coroutine's being made and its being awaited.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("quiet"),
]
"""The marks of a module of sweeps."""


def strike() -> None:
    raise Struck


def drive(loop: asyncio.AbstractEventLoop, body: Coroutine[Any, Any, R]) -> R:
    """Run the loop until it is done, again after each strike, as notebooks do."""
    task = loop.create_task(body, name=USER)
    while not task.done():
        # A RuntimeError is asyncio's own: after a strike in the turn in which the last
        # task ended, the call that stops the loop is still there.
        with contextlib.suppress(KeyboardInterrupt, Struck, RuntimeError):
            loop.run_until_complete(task)
    return task.result()


@contextlib.contextmanager
def noting(point: str) -> Iterator[None]:
    """Tell where it was struck, in whatever the block raises."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"struck at {point}")
        raise
