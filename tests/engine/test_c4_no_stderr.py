"""C4: a log that cannot be written harms no item, and no epoch."""

import contextlib
import io
import logging
from collections.abc import Iterator

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, DeliveryError, Retry
from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.fences import warn_of_new_table
from tests.engine.every_loop import every_loop


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise RuntimeError(text)


class Unwritable(logging.Handler):
    """Fails as one of stderr does when that is closed: so does telling of it."""

    def emit(self, record: logging.LogRecord) -> None:
        message = "I/O operation on closed file"
        raise ValueError(message)


@contextlib.contextmanager
def no_stderr(how: str) -> Iterator[None]:
    """No fixture: pytest has a stderr of its own for each phase of a test."""
    stderr = Broken() if how == "broken" else io.StringIO()
    if how == "closed":
        stderr.close()
    handler, log = Unwritable(), logging.getLogger("batchqueue_async")
    log.addHandler(handler)
    try:
        with contextlib.redirect_stderr(stderr):
            yield
    finally:
        log.removeHandler(handler)


each_way = pytest.mark.parametrize("how", ["closed", "broken"])


@every_loop
@each_way
async def test_a_queue_goes_on_where_nothing_can_be_logged(how: str) -> None:
    """Its drain task ended with the first line, and with it flush and shutdown."""
    batches: list[list[int]] = []

    async def fail(batch: list[int]) -> None:
        batches.append(batch)
        raise OSError

    config = BatchQueueConfig(consumer=fail, retry=Retry(attempts=2, wait_initial=0.01))
    with no_stderr(how):
        async with BatchQueue("q", config) as queue:
            for number in range(3):
                await queue.produce(number)
                with pytest.raises(DeliveryError):
                    await queue.flush(5)
    assert batches == [[0], [0], [1], [1], [2], [2]]
    assert queue.stats().failed == 3


@each_way
def test_an_epoch_is_committed_where_nothing_can_be_logged(how: str) -> None:
    with no_stderr(how):
        warn_of_new_table(Epoch("query", 1), "table")
