"""A signal handler raises as the loop begins to take a worker thread's answer."""

import logging
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, in_thread
from batchqueue_async._bridge import worker
from batchqueue_async._threads.wake_up_file import WakeUpFile
from tests.bridge.background import PATIENCE
from tests.support.striking import Struck


@pytest.mark.real_time
@pytest.mark.parametrize("has_file", [True, False])
async def test_the_answer_of_a_thread_comes_though_its_callback_was_struck(
    monkeypatch: pytest.MonkeyPatch,
    asyncio_errors: list[logging.LogRecord],
    has_file: bool,  # noqa: FBT001
) -> None:
    if not has_file:
        monkeypatch.setattr(WakeUpFile, "of", lambda _: None)
    tell = worker._tell
    struck: list[Any] = []

    def struck_once(*answer: Any) -> None:  # noqa: ANN401 - as it is given
        if not struck:
            struck.append(answer)
            raise Struck
        tell(*answer)

    monkeypatch.setattr(worker, "_tell", struck_once)
    handled: list[int] = []
    config = BatchQueueConfig[int](consumer=in_thread(handled.extend))
    async with BatchQueue("q", config) as queue:
        for number in range(2):
            await queue.produce(number)
            await queue.flush(PATIENCE)
    assert struck
    assert handled == [0, 1]
    assert queue.stats().handled == 2
    asyncio_errors.clear()
