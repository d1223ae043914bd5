"""Type-checks the names of `batchqueue_async.testing` as a user's test would."""

import asyncio
from typing import Any, assert_type

from batchqueue_async import BatchHandler, BatchQueueConfig
from batchqueue_async.testing import (
    Deadlock,
    RecordingHandler,
    VirtualTimeLoop,
    run_virtual,
    settle,
)


async def answer() -> int:
    await settle()
    assert_type(await settle(max_cycles=10), None)
    return 42


def virtual_time() -> None:
    assert_type(run_virtual(answer()), int)
    factory: type[asyncio.AbstractEventLoop] = VirtualTimeLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(answer())
    error: type[AssertionError] = Deadlock
    assert error


def refusal(batch: list[int]) -> ValueError | None: ...


def recording() -> None:
    of_anything = RecordingHandler()
    assert_type(of_anything, RecordingHandler[Any])
    assert_type(RecordingHandler(fail_when=refusal), RecordingHandler[int])
    handler = RecordingHandler[str](gate=asyncio.Event(), delay=0.1)
    as_handler: BatchHandler[str] = handler
    BatchQueueConfig(consumer=as_handler)
    assert_type(handler.batches, list[list[str]])
    assert_type(handler.items, list[str])
    assert_type(handler.times, list[float])
    RecordingHandler[int](fail_when=lambda batch: ValueError(sum(batch)))
