"""A manager that is used on one loop after the other, whatever has ended the first."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    SharedDrainTasks,
)
from tests.support.recording_handler import RecordingHandler

PATIENCE = 30.0
SHARED = SharedDrainTasks("io", DrainTaskPolicy.fixed(1))

Main = Callable[[], Coroutine[Any, Any, None]]


def run_and_close(main: Main) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()


each_end = pytest.mark.parametrize(
    "run", [lambda main: asyncio.run(main()), run_and_close], ids=["run", "close"]
)
pytestmark = [
    pytest.mark.filterwarnings("ignore:the loop of queue:ResourceWarning"),
]


@each_end
def test_queues_that_ended_with_their_loop_free_their_names(
    run: Callable[[Main], None],
) -> None:
    manager = BatchQueueManager()
    left: list[str] = []
    config = BatchQueueConfig[str](
        linger=60,
        consumer=RecordingHandler[str](),
        on_error=lambda batch, _: left.extend(batch),
    )

    async def lose() -> None:
        queue = await manager.create("q", config)
        assert await queue.produce("lost")

    async def use() -> None:
        assert manager.queues == ()
        handler = RecordingHandler[str]()
        config = BatchQueueConfig[str](consumer=handler)
        async with manager, asyncio.timeout(PATIENCE):
            queue = await manager.get_or_create("q", config)
            assert await queue.produce("next")
            await manager.flush()
        assert handler.handled == ["next"]

    run(lose)
    assert left == ["lost"]
    asyncio.run(use())


@each_end
def test_a_permit_of_a_loop_that_has_ended_holds_nobody_up(
    run: Callable[[Main], None],
) -> None:
    manager = BatchQueueManager()
    stuck = RecordingHandler[str](gate=asyncio.Event())

    async def lose() -> None:
        for name, handler in (("a", stuck), ("b", RecordingHandler[str]())):
            config = BatchQueueConfig[str](consumer=handler, drain_tasks=SHARED)
            queue = await manager.create(name, config)
            assert await queue.produce(name)
        await stuck.entered()

    async def use() -> None:
        handler = RecordingHandler[str]()
        config = BatchQueueConfig[str](consumer=handler, drain_tasks=SHARED)
        async with manager, asyncio.timeout(PATIENCE):
            queue = await manager.create("c", config)
            assert await queue.produce("next")
            await manager.flush()
        assert handler.handled == ["next"]

    run(lose)
    asyncio.run(use())
