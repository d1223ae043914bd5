"""G3: what a thread was not told of, since it had given up, its next flush tells."""

import asyncio
import time
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    LoopThread,
)


def fail(_: list[int]) -> None:
    message = "down"
    raise OSError(message)


def block_the_next_turn(_batch: list[int], _error: BaseException) -> None:
    """In which the flush ends, after that."""
    asyncio.get_running_loop().call_soon(time.sleep, 0.6)


@pytest.mark.parametrize("whole", [False, True])
def test_a_flush_that_ended_when_its_thread_had_given_up(*, whole: bool) -> None:
    """The queue's, and the loop thread's: of all queues."""
    with LoopThread(patience=0.1) as loop_thread:
        config = BatchQueueConfig[Any](consumer=fail, on_error=block_the_next_turn)
        queue = loop_thread.open("q", config)
        flush = loop_thread.flush if whole else queue.flush
        queue.produce(1)
        told: list[int] = []
        # On a busy machine the thread is patient, and is told at once.
        for _ in range(20):
            try:
                flush(timeout=20)
            except DeliveryError as error:
                told.append(error.count)
            except BatchQueueError:
                continue
            else:
                break
        assert told == [1]
