"""What belongs to one process says so where it is sent to another one, or copied."""

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueManager, LoopThread


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


def test_a_process_does_not_start_with_one(loop_thread: LoopThread) -> None:
    queue = loop_thread.open("q", None, {int: print})
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=print, args=(queue,))
    with pytest.raises(TypeError, match="a SyncBatchQueue can't be"):
        process.start()
    assert queue.produce_many([]) == 0
