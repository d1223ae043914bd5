"""C4: a task that a loop's end cancels flushes as it cleans up, or waits for room.

The loop waits for that task, so its queue goes on, and no longer than that.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, DeliveryError
from batchqueue_async.testing import VirtualTimeLoop
from tests.support.oracle import check_settled
from tests.support.real_loops import LoopFactory, real_loops

pytestmark = pytest.mark.filterwarnings("ignore:the loop of queue:ResourceWarning")

LIVES = 8
"""In which order tasks are cancelled differs from life to life."""

CleanUp = Callable[[BatchQueue[int]], Awaitable[object]]

every_loop = pytest.mark.parametrize(
    "new_loop",
    [VirtualTimeLoop, *real_loops().values()],
    ids=["virtual", *real_loops().keys()],
)


async def flushes(queue: BatchQueue[int]) -> None:
    assert await queue.produce(0)
    await queue.flush()


async def produces(queue: BatchQueue[int]) -> None:
    for number in range(6):
        assert await queue.produce(number)


async def produces_many(queue: BatchQueue[int]) -> None:
    assert await queue.produce_many(range(6)) == 6


async def flushes_late(queue: BatchQueue[int]) -> None:
    # When the queue has been looked at, and nobody waited for it yet.
    await asyncio.sleep(0.2)
    await flushes(queue)


WAYS = [flushes, produces, produces_many, flushes_late]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Program:
    """It ends while a task of it sleeps, which cleans up; its queue is left open."""

    def __init__(self, clean_up: CleanUp) -> None:
        self._clean_up = clean_up
        self.handled: list[int] = []
        self.told: list[int] = []
        self.has_cleaned_up = False
        self.queue = BatchQueue(
            "q",
            BatchQueueConfig[int](
                consumer=self._store,
                buffer_size=2,
                max_batch=1,
                on_error=lambda batch, _: self.told.extend(batch),
            ),
        )

    async def _store(self, batch: list[int]) -> None:
        await asyncio.sleep(0.001)
        self.handled += batch

    async def _work(self) -> None:
        try:
            await asyncio.sleep(1_000.0)
        finally:
            await self._clean_up(self.queue)
            self.has_cleaned_up = True

    async def main(self) -> None:
        await self.queue.start()
        self.working = asyncio.create_task(self._work())
        await asyncio.sleep(0.001)
        # In virtual time what hangs is seen at once, on real clocks after that.
        asyncio.get_running_loop().call_later(30.0, asyncio.get_running_loop().stop)


@every_loop
@pytest.mark.parametrize("clean_up", WAYS)
def test_the_loop_ends(new_loop: LoopFactory, clean_up: CleanUp) -> None:
    for _ in range(LIVES):
        program = Program(clean_up)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(program.main())
        assert program.has_cleaned_up
        stats = check_settled(program.queue)
        assert len(program.handled) == stats.handled
        assert len(program.told) == stats.failed + stats.returned
        assert sorted(program.handled + program.told) == [*range(stats.accepted)]


def test_nothing_is_handled_for_a_task_that_waits_for_something_else() -> None:
    async def pauses(queue: BatchQueue[int]) -> None:
        assert queue.produce_nowait(0)
        await asyncio.sleep(5.0)

    program = Program(pauses)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(program.main())
    assert (program.handled, program.told) == ([], [0])


@pytest.mark.real_time
@every_loop
def test_ctrl_c_while_the_queue_is_left(new_loop: LoopFactory) -> None:
    handled: list[int] = []
    errors: list[Any] = []

    async def store(batch: list[int]) -> None:
        await asyncio.sleep(0.001)
        handled.extend(batch)
        if len(handled) == 3:
            signal.raise_signal(signal.SIGINT)

    async def work(queue: BatchQueue[int]) -> None:
        try:
            await asyncio.sleep(1_000.0)
        finally:
            try:
                await queue.flush()
            except DeliveryError as error:
                errors.append(error)

    async def main() -> None:
        config = BatchQueueConfig[int](consumer=store, max_batch=1)
        async with BatchQueue("q", config) as queue:
            working = asyncio.create_task(work(queue))
            await queue.produce_many(range(20))
            asyncio.get_running_loop().call_later(30.0, working.get_loop().stop)

    with (
        pytest.raises(KeyboardInterrupt),
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(main())
    # All but the one that was cancelled in its handler's hands, if one was.
    lost = sum(error.count for error in errors)
    assert len(handled) + lost == 20
    assert lost <= 1
