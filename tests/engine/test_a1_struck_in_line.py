"""A1, D2: Ctrl-C strikes who waits for room, or a drain task, and the loop lives on."""

import asyncio
import contextlib
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.interruptions import Interruption
from tests.support.oracle import check_settled

MOST_POINTS = 2_000


class Struck(Exception):
    """As from a SIGALRM's handler."""


class Hooked:
    """Its hook gives a drain task some points more at which it can be struck."""

    def __init__(self, handled: list[int]) -> None:
        self.handled = handled

    def consume(self, batch: list[int]) -> None:
        self.handled += batch

    def on_open(self) -> None:
        """There is nothing to do."""


# It may strike between a coroutine's being made and being awaited, as in any program.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize(
    "settings", [{}, {"size_of": len, "buffer_bytes": 100}], ids=["plain", "sized"]
)
async def test_who_is_struck_in_line_has_produced_nothing(
    settings: dict[str, Any],
) -> None:
    me = asyncio.current_task()

    def strike() -> None:
        if asyncio.current_task() is me:
            raise Struck

    for at in range(MOST_POINTS):
        handled: list[str] = []
        gate = asyncio.Event()

        async def wait(batch: list[str], gate: asyncio.Event = gate) -> None:
            await gate.wait()
            handled.extend(batch)  # noqa: B023 - it is closed before the next turn

        config = BatchQueueConfig[Any](consumer=wait, buffer_size=1, **settings)
        async with BatchQueue("q", config) as queue:
            await queue.produce("in the handler's hands")
            await asyncio.sleep(1.0)
            await queue.produce("in the buffer")
            asyncio.get_running_loop().call_later(1.0, gate.set)
            is_accepted = False
            with (
                contextlib.suppress(Struck),
                Interruption(at, strike) as interruption,
            ):
                is_accepted = await queue.produce("in line")
            await asyncio.sleep(100.0)
            assert ("in line" in handled) is is_accepted
            await queue.produce("after it")
            await asyncio.sleep(100.0)
            assert handled[-1] == "after it"
            assert check_settled(queue).handled == 3 + is_accepted
            assert not queue.stats().waiting_bytes
        if not interruption.has_acted:
            return
    pytest.fail("it never came to an end")


def handled_where_a_drain_task_is_struck(at: int) -> tuple[list[int], bool]:
    """Return what was handled in the end, and whether one was struck at this point."""
    has_struck = False

    def strike() -> None:
        nonlocal has_struck
        task = asyncio.current_task()
        if task is not None and "drain task" in task.get_name():
            has_struck = True
            raise KeyboardInterrupt

    loop = VirtualTimeLoop()
    handled: list[int] = []
    config = BatchQueueConfig[int](consumer=Hooked(handled))
    queue = BatchQueue("q", config)
    loop.run_until_complete(queue.start())
    loop.run_until_complete(asyncio.sleep(1.0))
    with contextlib.suppress(KeyboardInterrupt), Interruption(at, strike) as point:
        loop.run_until_complete(fill(queue))
    # As a notebook's next cell does.
    loop.run_until_complete(asyncio.sleep(100.0))
    loop.run_until_complete(queue.shutdown())
    loop.close()
    if not point.has_acted:
        raise IndexError(at)
    return handled, has_struck


def test_a_drain_task_that_ctrl_c_ended_goes_on_when_the_loop_runs_again() -> None:
    has_struck = False
    at = 0
    # Before it takes anything.
    while not has_struck:
        handled, has_struck = handled_where_a_drain_task_is_struck(at)
        assert handled == [*range(10)]
        at += 1


def test_nothing_is_delivered_twice_wherever_ctrl_c_strikes_a_drain_task() -> None:
    struck = 0
    with contextlib.suppress(IndexError):
        for at in range(MOST_POINTS):
            handled, has_struck = handled_where_a_drain_task_is_struck(at)
            assert handled in ([*range(10)], [])
            struck += has_struck
    assert struck > 30


async def fill(queue: BatchQueue[int]) -> None:
    for number in range(10):
        queue.produce_nowait(number)
    await asyncio.sleep(1.0)
