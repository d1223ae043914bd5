"""F4: lists of a shutdown that nobody has fetched are told as the loop ends, also to an
async `on_error`, and whatever is cut off in that very turn."""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager
from batchqueue_async.testing import VirtualTimeLoop
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.real_loops import LoopFactory, real_loops

every_loop = pytest.mark.parametrize(
    "new_loop",
    [VirtualTimeLoop, *real_loops().values()],
    ids=["virtual", *real_loops().keys()],
)


class DeadLetters:
    """What an async `on_error` was told; the queue's handler never ends."""

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        self.told: list[int] = []
        self.manager = BatchQueueManager()
        self.queues: list[BatchQueue[int]] = []

    async def tell(self, batch: list[int], _: BaseException) -> None:
        self.begun.append(batch)
        await asyncio.sleep(0.001)
        self.told += batch

    async def fill(self, handler_timeout: float | None = None) -> None:
        async def never(_: list[int]) -> None:
            await asyncio.Event().wait()

        config = BatchQueueConfig(
            consumer=never,
            max_batch=1,
            on_error=self.tell,
            handler_timeout=handler_timeout,
        )
        queue = await self.manager.create("rows", config)
        await queue.produce_many([1, 2, 3])
        self.queues.append(queue)

    async def shut_down_by_a_handler(self) -> None:
        """That handler's queue ends last, and has nothing left."""
        config = BatchQueueConfig(consumer=self.command)
        commands = await self.manager.create("commands", config)
        await self.fill()
        await commands.produce("stop")
        # One whose list nobody has fetched is among the manager's queues until then.
        await until(lambda: len(self.manager.queues) == 1)
        await turns()

    async def command(self, _: list[str]) -> None:
        await self.manager.shutdown_all(0.05)


@every_loop
def test_a_handlers_shutdown_of_all(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    letters = DeadLetters()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(letters.shut_down_by_a_handler())
    assert letters.told == [1, 2, 3]
    assert check_settled(letters.queues[0]).returned == 3
    assert {each.levelno for each in caplog.records} == {logging.ERROR}
    assert [
        each.getMessage().partition(" of 'rows'")[0] for each in caplog.records
    ] == [
        "3 items",
        "nobody came for the 3 items that the shutdown",
    ]


@every_loop
def test_a_call_that_fetches_them_leaves_nothing_to_tell(new_loop: LoopFactory) -> None:
    letters = DeadLetters()

    async def main() -> None:
        await letters.shut_down_by_a_handler()
        assert await letters.manager.shutdown_all() == {"rows": [1, 2, 3]}
        # The loop goes on with other queues.
        await letters.fill()
        await letters.manager.close(0.05)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert letters.told == [1, 2, 3]


@every_loop
@pytest.mark.parametrize("handler_timeout", [None, 0.5, 5.0])
def test_a_closing_that_is_cut_off_before_on_error_has_begun(
    new_loop: LoopFactory, handler_timeout: float | None
) -> None:
    for ahead in range(6):
        letters = DeadLetters()

        async def main(letters: DeadLetters = letters, ahead: int = ahead) -> None:
            await letters.fill(handler_timeout)
            queue = letters.queues[0]
            shutdown = asyncio.create_task(queue.shutdown(0.0))
            await asyncio.sleep(0)
            shutdown.cancel()
            await until(lambda: queue.stats().returned)
            await turns()
            closing = asyncio.create_task(queue.close())
            await turns(ahead)
            # It holds a second of `on_error`, and is cut off with the loop.
            assert not closing.done() or letters.told

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())
        assert letters.begun == [[1, 2, 3]], ahead


@pytest.mark.filterwarnings("ignore:the loop of queue:ResourceWarning")
@every_loop
@pytest.mark.parametrize("handler_timeout", [None, 5.0])
def test_asyncio_has_nothing_to_say_of_a_handler_that_is_inside(
    new_loop: LoopFactory,
    handler_timeout: float | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        letters = DeadLetters()
        await letters.fill(handler_timeout)
        await turns()
        assert letters.queues[0].stats().in_flight == 1

    loop = new_loop()
    loop.run_until_complete(main())
    loop.close()
    del loop
    gc.collect()
    assert {each.name for each in caplog.records} == {"batchqueue_async"}


async def test_on_error_has_no_more_time_for_them_than_for_others() -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    config = BatchQueueConfig[int](
        consumer=never, max_batch=1, on_error=never, handler_timeout=0.2
    )
    queue = BatchQueue("q", config)
    await queue.start()
    await queue.produce_many([1, 2])
    await turns()
    started = asyncio.get_running_loop().time()
    await queue.close(0.05)
    assert asyncio.get_running_loop().time() - started < 1.0


@pytest.mark.filterwarnings("ignore:the loop of queue:ResourceWarning")
@pytest.mark.parametrize("ahead", range(6))
def test_what_is_given_back_as_the_loop_ends_already(
    ahead: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As by what cleans up with the loop, and is cut off in any turn."""
    letters = DeadLetters()

    async def ends_with_the_loop() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            shutdown = asyncio.create_task(letters.manager.shutdown_all(0.0))
            await turns(ahead)
            shutdown.cancel()
            await asyncio.wait({shutdown})
            await asyncio.sleep(0.1)

    async def main() -> AsyncGenerator[None, None]:
        await letters.fill()
        await turns()
        generator = ends_with_the_loop()
        await anext(generator)
        return generator

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        _generator = runner.run(main())
    assert [each for batch in letters.begun for each in batch] == [1, 2, 3]
    # asyncio cancels its tasks in no order, so that the item in the handler's hands may
    # fail first; then the deadline finds `on_error` inside.
    cut_off = [each for each in caplog.messages if "on_error was cut off" in each]
    assert letters.told == [1, 2, 3][len(cut_off) :]
    assert not cut_off or letters.begun == [[1], [2, 3]]
