"""What belongs to one process says so where it is sent to another one, or copied."""

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    LoopThread,
    in_process,
    in_thread,
)


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_refused(send: Callable[[Any], object], loop_thread: LoopThread) -> None:
    sync_queue = loop_thread.open("q")
    queue: BatchQueue[Any] = BatchQueue("q")
    for each in (queue, sync_queue, sync_queue.queue, loop_thread, BatchQueueManager()):
        with pytest.raises(TypeError) as refused:
            send(each)
        assert str(refused.value) == (
            f"a {type(each).__name__} can't be copied, or sent to another process: "
            "make one there, as process_queue does"
        )


@pytest.mark.parametrize("wrap", [in_thread, in_process])
def test_a_configuration_s_handler_is_named(wrap: Callable[[Any], Any]) -> None:
    config = BatchQueueConfig[Any](consumer=wrap(print))
    with pytest.raises(TypeError) as refused:
        pickle.dumps(config)
    assert str(refused.value) == (
        f"{config.consumer} can't be copied, or sent to another process: wrap the"
        " handler there, such as in the function that opens its queue"
    )


def test_a_process_does_not_start_with_one(loop_thread: LoopThread) -> None:
    queue = loop_thread.open("q", None, {int: print})
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=print, args=(queue,))
    with pytest.raises(TypeError, match="a SyncBatchQueue can't be"):
        process.start()
    assert queue.produce_many([]) == 0
