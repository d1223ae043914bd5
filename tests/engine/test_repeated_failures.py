"""Equal failures are logged once in full, then counted, and none is lost."""

import asyncio
import logging
import re
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, IdleBackoff
from batchqueue_async._log import (
    MOST,
    MOST_LINES,
    NEWS_AFTER,
    RepeatedFailures,
)
from benchmarks.opcodes import Instructions
from tests.engine.observing import live_timers
from tests.engine.until import until

ONE_BY_ONE = BatchQueueConfig[Any](max_batch=1)


class Told:
    """The log's lines: in full, and how many more each of the others counts."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def in_full(self) -> list[str]:
        records = self._caplog.records
        return [each.getMessage() for each in records if each.exc_info]

    @property
    def others(self) -> list[str]:
        records = self._caplog.records
        return [each.getMessage() for each in records if not each.exc_info]

    @property
    def counted(self) -> int:
        found = re.findall(r"\.\.\. (\d+) more time", "\n".join(self.others))
        return sum(map(int, found))


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    caplog.set_level(logging.ERROR, "batchqueue_async")
    return Told(caplog)


def fail(batch: list[Any]) -> None:
    message = f"no room for {batch}"
    raise ValueError(message)


async def test_the_first_one_is_logged_and_the_others_at_the_end(told: Told) -> None:
    async with BatchQueue("q", ONE_BY_ONE) as queue:
        queue.add_handler(int, fail)
        assert await queue.produce_many(range(38)) == 38
    (first,) = told.in_full
    assert first == "q: 1 items failed in fail of int"
    (line,) = told.others
    assert line == (
        "q: items failed in fail of int ... 37 more times in the last second (37 items)"
        ", such as ValueError('no room for [1]')"
    )


async def test_under_load_there_is_a_line_a_second(told: Told) -> None:
    async def fail_slowly(_: list[int]) -> None:
        await asyncio.sleep(0.01)
        raise ValueError

    async with BatchQueue("q", ONE_BY_ONE) as queue:
        queue.add_handler(int, fail_slowly)
        assert await queue.produce_many(range(501)) == 501
    assert len(told.in_full) == 1
    assert told.counted == 500
    assert len(told.others) in (5, 6)


async def test_what_was_counted_is_told_by_a_later_cycle(told: Told) -> None:
    """Nothing fails any more, and nobody ends the queue."""
    async with BatchQueue("q", ONE_BY_ONE) as queue:
        queue.add_handler(int, fail)
        queue.add_handler(str, lambda _: None)
        assert await queue.produce_many([1, 2, 3]) == 3
        await until(lambda: queue.stats().failed == 3)
        assert not told.others
        await asyncio.sleep(20)
        assert await queue.produce("text")
        await until(lambda: told.others)
        assert told.counted == 2
    assert len(told.others) == 1


async def test_no_timer_waits_for_more(told: Told) -> None:
    async with BatchQueue("q", ONE_BY_ONE) as queue:
        queue.add_handler(int, fail)
        assert await queue.produce_many([1, 2, 3]) == 3
        await until(lambda: queue.stats().failed == 3)
        await asyncio.sleep(0.1)
        assert not live_timers()
    assert told.counted == 2


async def test_what_differs_is_logged_in_full(told: Told) -> None:
    """By handler, by type of exception, by the line that raised it."""

    def fail_in_ways(batch: list[Any]) -> None:
        if batch[0] % 3 == 0:
            raise ValueError
        if batch[0] % 3 == 1:
            raise KeyError
        raise ValueError

    async with BatchQueue("q", ONE_BY_ONE) as queue:
        queue.add_handler(int, fail_in_ways)
        queue.add_handler(str, fail)
        assert await queue.produce_many([*range(9), "text"]) == 10
    assert len(told.in_full) == 4
    assert told.counted == 6


async def test_an_error_that_is_raised_again_and_again_is_one_kind(told: Told) -> None:
    """Its traceback has all the former ways, and grows."""
    error = ValueError("always this one")

    async def raise_it(_: list[int]) -> None:
        await asyncio.sleep(0)
        raise error

    async with BatchQueue("q", ONE_BY_ONE) as queue:
        queue.add_handler(int, raise_it)
        assert await queue.produce_many(range(50)) == 50
    assert len(told.in_full) == 1
    assert told.counted == 49


async def test_after_a_long_silence_it_is_news_again(told: Told) -> None:
    async with BatchQueue("q", ONE_BY_ONE) as queue:
        queue.add_handler(int, fail)
        assert await queue.produce_many([1, 2]) == 2
        await asyncio.sleep(NEWS_AFTER + 1)
        assert await queue.produce(3)
    assert (len(told.in_full), told.counted) == (2, 1)


async def test_a_failing_on_error_and_hooks_are_counted_too(told: Told) -> None:
    class Failing:
        def consume(self, batch: list[Any]) -> None:
            fail(batch)

        async def on_idle(self) -> None:
            raise OSError

    def on_error(_: list[Any], __: BaseException) -> None:
        raise RuntimeError

    config = BatchQueueConfig[Any](
        max_batch=1, on_error=on_error, idle=IdleBackoff(0.01, 0.01)
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, Failing())
        assert await queue.produce_many(range(20)) == 20
        await asyncio.sleep(10)
    assert len(told.in_full) == 2
    assert told.counted > 500
    assert 10 <= len(told.others) <= 14


async def test_kinds_are_bounded_and_all_others_are_counted(told: Told) -> None:
    repeats = RepeatedFailures()
    for _ in range(2):
        for number in range(MOST + 50):
            repeats.error("%d", number, title=f"{number} failed", error=OSError())
    assert len(told.in_full) == MOST
    repeats.tell(float("inf"))
    assert told.counted == MOST + 100
    assert len(repeats._kinds or ()) == MOST + 1


async def test_kinds_that_are_full_are_not_searched_at_each_failure(told: Told) -> None:
    """Until there may be room again, for a kind that nothing was heard of for long."""
    repeats, counts = RepeatedFailures(), Instructions()
    for number in range(MOST + 1):
        repeats.error("%d", number, title=f"{number} failed", error=OSError())
    with counts.counted():
        repeats.error("", title="further", error=OSError())
    assert sum(counts.by_line().values()) < 2 * MOST
    assert len(told.in_full) == MOST
    await asyncio.sleep(NEWS_AFTER)
    repeats.error("", title="late", error=OSError())
    assert len(told.in_full) == MOST + 1


async def test_of_many_kinds_few_lines_a_second_tell(told: Told) -> None:
    """A server is down, and hundreds of handlers say so."""
    repeats = RepeatedFailures()
    for _ in range(40):
        for number in range(100):
            for _ in range(3 if number == 50 else 1):
                failed = f"q: items failed in {number}"
                repeats.error(
                    "", title=failed, error=OSError(), items=2, queue="q", handler="H"
                )
        await asyncio.sleep(0.1)
    assert len(told.in_full) == 100
    assert len(told.others) <= 4 * MOST_LINES
    first, *_, last = told.others[:MOST_LINES]
    assert first.startswith("q: items failed in 50 ... ")
    assert re.match(r"q: items failed in \d+, and 92 other kinds \.\.\. \d+ more", last)
    repeats.tell(float("inf"))
    assert told.counted == 40 * 102 - 100, "none is lost"


async def test_kinds_that_began_one_by_one_are_told_together(told: Told) -> None:
    """Each in its own time would be a line each."""
    repeats = RepeatedFailures()
    for _ in range(4):
        for number in range(100):
            repeats.error("", title=f"q: it failed in {number}", error=OSError())
            await asyncio.sleep(0.01)
    assert len(told.in_full) == 100
    assert len(told.others) <= 4 * MOST_LINES
