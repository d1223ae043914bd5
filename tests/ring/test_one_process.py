"""A ring, and each part of it, says so where it is copied or sent to a process."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async.ring import (
    Disruptor,
    RingBuffer,
    Sequence,
    SyncRing,
    WorkerPool,
)


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
async def test_it_is_refused(send: Callable[[Any], object]) -> None:
    disruptor = Disruptor(list[int], 8)
    ring: RingBuffer[Any] = RingBuffer(list[int], 8)
    pool = WorkerPool(ring, lambda _event, _sequence, _end_of_batch: None)
    rings = (disruptor, ring, SyncRing(ring), pool)
    parts = (ring.sequencer, ring.claim(), Sequence(), ring.new_barrier())
    for each in (*rings, *parts):
        with pytest.raises(TypeError) as refused:
            send(each)
        assert str(refused.value) == (
            f"a {type(each).__name__} can't be copied, or sent to another process: "
            "make a ring there"
        )
