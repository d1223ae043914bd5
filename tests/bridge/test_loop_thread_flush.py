"""`LoopThread.flush`: a chain that was opened without the portal is flushed through."""

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    LoopThread,
    Merging,
)
from tests.bridge.background import answers, in_background


def test_a_chain_is_flushed_through(loop_thread: LoopThread) -> None:
    stored: list[int] = []
    storage = loop_thread.open(
        "storage", BatchQueueConfig[int](consumer=stored.extend, linger=60)
    )
    merging = Merging[int](
        key=lambda item: item % 10, merge=max, then=storage.queue, every=3600
    )
    config = BatchQueueConfig[int](consumer=merging, linger=60)
    front = loop_thread.open("front", config)
    assert front.queue.config is config

    def produce() -> int:
        return front.produce_many(range(100))

    assert answers([in_background(produce) for _ in range(4)]) == [100] * 4
    loop_thread.flush(timeout=20)
    assert sorted(stored) == list(range(90, 100))


def test_what_failed_is_raised(loop_thread: LoopThread) -> None:
    queue = loop_thread.open("nobody handles", BatchQueueConfig[int]())
    queue.produce(1)
    with pytest.raises(DeliveryError, match="'nobody handles'"):
        loop_thread.flush(timeout=20)
    loop_thread.flush(timeout=20)
    # Its own log is another one.
    with pytest.raises(DeliveryError):
        queue.flush(timeout=20)


def test_where_it_cannot_be_called(loop_thread: LoopThread) -> None:
    errors: list[str] = []

    def consume(_: list[int]) -> None:
        try:
            loop_thread.flush()
        except BatchQueueError as error:
            errors.append(str(error))

    queue = loop_thread.open("q", BatchQueueConfig[int](consumer=consume))
    queue.produce(1)
    loop_thread.flush(timeout=20)
    assert len(errors) == 1
    assert "on its own loop would never end" in errors[0]
    with pytest.raises(BatchQueueError, match="does not run"):
        LoopThread().flush()
    with pytest.raises(ValueError, match="timeout must be"):
        loop_thread.flush(timeout=-1)
