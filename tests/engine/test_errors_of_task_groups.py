"""What tasks of a handler's `TaskGroup` raise comes as a group, and counts."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, PartialFailure, Retry
from batchqueue_async import RetryAfter as After
from batchqueue_async._engine.handlers import adaptive_max_batch
from batchqueue_async._policies.retry import checked_answer, pause_asked_for
from batchqueue_async.testing import RecordingHandler

RETRY = Retry(attempts=3, retry_on=(ConnectionError,), wait_initial=0.0)


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("unhandled errors in a TaskGroup", errors)


class Handler:
    """Its first call raises this in tasks, one for each error."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = errors
        self.times: list[float] = []

    async def consume(self, batch: list[Any]) -> None:
        self.times.append(asyncio.get_running_loop().time())
        errors, self.errors = self.errors, ()
        async with asyncio.TaskGroup() as tasks:
            for error in errors:
                tasks.create_task(self._raise(error))

    async def _raise(self, error: Exception) -> None:
        # An eager task would raise as it is made, and the group take no other.
        await asyncio.sleep(0)
        raise error


async def handled_by(handler: Handler, retry: Retry = RETRY) -> tuple[int, int]:
    config = BatchQueueConfig(consumer=handler, retry=retry)
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(3))
    return queue.stats().handled, queue.stats().failed


async def test_a_pause_that_a_task_asks_for_is_kept() -> None:
    """It was not seen, and the server asked again at once, or the batch given up."""
    handler = Handler(After(7.0), After(20.0))
    assert await handled_by(handler) == (3, 0)
    first, second = handler.times
    assert second - first >= 20.0


async def test_it_is_kept_beside_errors_that_are_tried_again() -> None:
    handler = Handler(ConnectionResetError(), group(After(7.0)))
    assert await handled_by(handler) == (3, 0)
    assert handler.times[1] - handler.times[0] >= 7.0


@pytest.mark.parametrize(
    "errors,calls",
    [
        ((ConnectionResetError(),), 2),
        ((ConnectionResetError(), group(TimeoutError(), ConnectionError())), 1),
        ((ValueError(), ConnectionError()), 1),
        # Whose positions these are nobody knows.
        ((PartialFailure([0]),), 1),
    ],
)
async def test_a_group_is_worth_another_attempt_if_all_in_it_are(
    errors: tuple[Exception, ...], calls: int
) -> None:
    handler = Handler(*errors)
    assert await handled_by(handler) == ((0, 3) if calls == 1 else (3, 0))
    assert len(handler.times) == calls


def test_a_group_s_class_may_be_named() -> None:
    error = group(ValueError())
    assert Retry(retry_on=(ExceptionGroup,)).retries(error)
    assert Retry().retries(error)
    assert not Retry(retry_on=(ConnectionError,)).retries(error)


async def test_a_batch_is_halved_for_what_is_in_a_group() -> None:
    class Halved(RecordingHandler[int]):
        async def consume(self, batch: list[int]) -> None:
            if 2 in batch:
                raise group(ConnectionError(), ValueError())
            await super().consume(batch)

    handler = Halved()
    retry = Retry(attempts=2, retry_on=(ConnectionError,), split_on=(ValueError,))
    config = BatchQueueConfig(consumer=handler, retry=retry)
    async with BatchQueue[int]("q", config) as queue:
        await queue.produce_many(range(4))
    assert sorted(handler.handled) == [0, 1, 3]
    assert queue.stats().failed == 1


def test_it_is_split_as_its_errors_would_be() -> None:
    retry = Retry(retry_on=(ConnectionError,), split=True)
    assert retry.splits(group(ConnectionError()))
    assert not retry.splits(group(ValueError()))
    assert not retry.splits(group(After(1.0)))


def test_a_receiver_that_throttles_one_task_throttles() -> None:
    limit = adaptive_max_batch._trouble
    assert limit(group(ConnectionError(), After(1.0))) == "throttled"
    assert limit(group(ConnectionError())) == "failed"
    assert pause_asked_for(group(ConnectionError(), After(1.0), After(3.0))) == 3.0


def test_a_wrong_pause_in_a_group_is_no_answer() -> None:
    wrong = After(1.0)
    wrong.seconds = -1.0
    answer = group(ConnectionError(), wrong)
    said = checked_answer(answer)
    assert str(said) == "seconds must be >= 0, got -1.0"
    assert said.__cause__ is answer
