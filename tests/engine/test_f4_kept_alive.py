"""F4: a started queue lives until its shutdown; without one, its loop says so."""

import asyncio
import gc
import logging
import warnings
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.real_loops import LoopFactory, real_loops
from tests.support.recording_handler import RecordingHandler

loops = pytest.mark.parametrize(
    "new_loop", real_loops().values(), ids=real_loops().keys()
)


@every_loop
async def test_nobody_needs_to_hold_it() -> None:
    handler = RecordingHandler[int]()

    async def start() -> weakref.ref[BatchQueue[int]]:
        queue = BatchQueue[int]("q")
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce_many([1, 2, 3])
        return weakref.ref(queue)

    kept = await start()
    gc.collect()
    await turns()
    gc.collect()
    await until(lambda: handler.handled == [1, 2, 3])
    queue = kept()
    assert queue is not None
    await queue.produce(4)
    assert await queue.shutdown() == []
    assert handler.handled == [1, 2, 3, 4]


@every_loop
async def test_idle_and_parked_it_is_kept_too() -> None:
    async def start() -> weakref.ref[BatchQueue[int]]:
        queue = BatchQueue[int]("q")
        await queue.start()
        queue.add_handler(int, lambda _: None)
        return weakref.ref(queue)

    kept = await start()
    for _ in range(3):
        await turns()
        gc.collect()
    queue = kept()
    assert queue is not None
    await queue.shutdown()


@every_loop
async def test_a_queue_that_was_never_started_is_just_collected() -> None:
    queue = BatchQueue[int]("q")
    gone = weakref.ref(queue)
    del queue
    gc.collect()
    assert gone() is None


class Forgotten:
    """A queue with so many items in flight and waiting, and nobody to shut it down."""

    def __init__(self, waiting: int, in_flight: int) -> None:
        self.waiting = waiting
        self.in_flight = in_flight
        config = BatchQueueConfig[int](max_batch=max(in_flight, 1))
        self.queue = BatchQueue("forgotten", config)

    async def fill(self) -> None:
        queue = self.queue
        queue.add_handler(int, RecordingHandler[int](gate=asyncio.Event()))
        await queue.start()
        await queue.produce_many(range(self.in_flight))
        await until(lambda: queue.stats().in_flight == self.in_flight)
        await queue.produce_many(range(self.waiting))

    async def fill_and_begin_to_close(self) -> None:
        await self.fill()
        closing = asyncio.create_task(self.queue.shutdown())
        await turns(3)
        closing.cancel()


def run_on(new_loop: LoopFactory, main: Coroutine[Any, Any, None]) -> list[str]:
    """As `asyncio.run`; returns the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main)
        gc.collect()
    assert all(each.category is ResourceWarning for each in caught)
    return sorted(str(each.message) for each in caught)


@loops
@pytest.mark.parametrize("waiting, in_flight", [(0, 0), (0, 2), (3, 2)])
def test_the_end_of_a_runner_warns_with_what_is_left(
    new_loop: LoopFactory, waiting: int, in_flight: int
) -> None:
    (message,) = run_on(new_loop, Forgotten(waiting, in_flight).fill())
    assert "'forgotten'" in message
    assert f" {waiting + in_flight} items" in message


@loops
def test_each_forgotten_queue_is_named(new_loop: LoopFactory) -> None:
    async def main() -> None:
        for name in ("one", "two"):
            await BatchQueue[int](name).start()
        async with BatchQueue[int]("three"):
            pass

    one, two = run_on(new_loop, main())
    assert "'one'" in one
    assert "'two'" in two


@loops
def test_a_loop_that_is_just_closed_warns_when_it_is_collected(
    new_loop: LoopFactory, asyncio_errors: list[logging.LogRecord]
) -> None:
    loop = new_loop()
    loop.run_until_complete(Forgotten(3, 2).fill())
    loop.close()
    del loop
    with pytest.warns(ResourceWarning, match=r"'forgotten'.* 5 items"):
        gc.collect()
    # asyncio's own complaint about tasks that nobody ended.
    assert all("was destroyed" in each.getMessage() for each in asyncio_errors)
    asyncio_errors.clear()


@loops
def test_after_a_shutdown_there_is_no_warning(new_loop: LoopFactory) -> None:
    async def main() -> None:
        for _ in range(3):
            async with BatchQueue[int]("q") as queue:
                queue.add_handler(int, lambda _: None)
                await queue.produce(1)

    assert run_on(new_loop, main()) == []


@loops
def test_a_shutdown_that_the_loop_cut_off_warns_too(new_loop: LoopFactory) -> None:
    """`asyncio.run` cancels every task, the queue's closing one among them."""
    (message,) = run_on(new_loop, Forgotten(1, 1).fill_and_begin_to_close())
    assert " 2 items" in message


@loops
def test_a_task_that_leaves_async_with_while_the_runner_ends(
    new_loop: LoopFactory,
) -> None:
    """The runner cancels it together with the queue's tasks: nothing is lost."""
    handler = RecordingHandler[int]()
    left: list[object] = []

    async def service() -> None:
        config = BatchQueueConfig[int](
            linger=1000.0, on_error=lambda batch, _: left.append(batch)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce_many([1, 2, 3])
            await asyncio.Event().wait()

    serving: list[asyncio.Task[None]] = []

    async def main() -> None:
        serving.append(asyncio.create_task(service()))
        await turns()

    assert run_on(new_loop, main()) == []
    assert handler.handled == [1, 2, 3]
    assert left == []


@loops
@pytest.mark.parametrize("later", range(12))
def test_a_loop_that_ends_in_the_middle_of_a_shutdowns_last_steps_says_nothing(
    new_loop: LoopFactory, later: int
) -> None:
    """Both end the generator by which a queue learns of its loop's end."""
    told: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        queue = BatchQueue[int]("q")
        await queue.start()
        closing = asyncio.create_task(queue.shutdown())
        await turns(later)
        await loop.shutdown_asyncgens()
        await closing

    assert run_on(new_loop, main()) == []
    assert told == []
