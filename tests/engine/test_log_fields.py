"""What a log line tells people in its text, its record tells programs in fields."""

import ast
import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    PartitionPolicy,
    Retry,
    WhenFull,
)
from batchqueue_async._log import logger
from tests.support.own_lines import own_lines

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "logging.md"
NOT_FIELDS = {"exc_info", "stack_info", "stacklevel", "extra"}
# Of a RepeatedFailures: what it tells equal failures by.
NOT_FIELDS |= {"title", "error", "period"}

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "batchqueue_async")
    return caplog


def documented() -> set[str]:
    """The names in the guide's table."""
    rows = re.findall(
        r"^\| (`.*?) \| [a-z, ]+ \|", GUIDE.read_text("utf-8"), re.MULTILINE
    )
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: vars(record)[name] for name in documented() if name in vars(record)}


def with_text(log: pytest.LogCaptureFixture, text: str) -> dict[str, Any]:
    """The fields of the one line that has this text."""
    (found,) = (each for each in log.records if text in each.getMessage())
    return fields_of(found)


def failing(batch: list[Any]) -> None:
    message = f"no room for {len(batch)}"
    raise OSError(message)


async def test_items_that_fail(log: pytest.LogCaptureFixture) -> None:
    async with BatchQueue("q", BatchQueueConfig[int](consumer=failing)) as queue:
        await queue.produce_many(range(3))
    assert with_text(log, "3 items failed in failing") == {
        "queue": "q",
        "handler": "failing",
        "partition": 0,
        "items": 3,
        "error_type": "OSError",
    }


class Refused(Exception):
    """Several errors, and none yet: it is false."""

    def __len__(self) -> int:
        return 0


async def test_an_error_that_is_false_has_its_traceback(
    log: pytest.LogCaptureFixture,
) -> None:
    def refusing(_: list[int]) -> None:
        raise Refused

    async with BatchQueue("q", BatchQueueConfig[int](consumer=refusing)) as queue:
        await queue.produce(1)
    assert with_text(log, "1 items failed in")["error_type"] == "Refused"
    assert "in refusing\n" in log.text


async def test_a_batch_of_several_partitions_names_none(
    log: pytest.LogCaptureFixture,
) -> None:
    config = BatchQueueConfig[int](
        consumer=failing,
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, count: item % count,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(4))
    assert with_text(log, "4 items failed in failing").keys() == {
        *("queue", "handler", "items", "error_type")
    }


async def test_items_that_are_tried_again(log: pytest.LogCaptureFixture) -> None:
    retry = Retry(attempts=2, wait_initial=1.5)
    config = BatchQueueConfig[int](consumer=failing, retry=retry)
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    told = with_text(log, "attempt 2 of 2")
    assert (told["attempt"], told["attempts"]) == (2, 2)
    assert 0.0 < told["wait"] <= 1.5
    assert (told["queue"], told["items"]) == ("q", 1)
    assert (told["handler"], told["error_type"]) == ("failing", "OSError")


async def test_the_line_that_counts_equal_failures(
    log: pytest.LogCaptureFixture,
) -> None:
    config = BatchQueueConfig[int](consumer=failing, max_batch=2)
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(10))
    assert with_text(log, "4 more times") == {
        "queue": "q",
        "handler": "failing",
        "error_type": "OSError",
        "count": 4,
        "items": 8,
    }


async def test_items_without_a_handler(log: pytest.LogCaptureFixture) -> None:
    async with BatchQueue[Any]("q") as queue:
        queue.add_handler(int, lambda _: None)
        await queue.produce("text")
    told = with_text(log, "no handler for items of type")
    assert told == {"queue": "q", "item_type": "str"}


async def test_items_that_are_dropped(log: pytest.LogCaptureFixture) -> None:
    async def slow(_: list[int]) -> None:
        await asyncio.sleep(60)

    config = BatchQueueConfig[int](
        consumer=slow, buffer_size=5, when_full=WhenFull.DROP_OLDEST
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(12))
    assert with_text(log, "items were dropped") == {"queue": "q", "items": 7}


async def test_hooks_that_fail(log: pytest.LogCaptureFixture) -> None:
    class Hooked:
        def consume(self, batch: list[int]) -> None:
            pass

        def on_flush(self) -> None:
            raise LookupError

    async with BatchQueue("q", BatchQueueConfig[int](consumer=Hooked())) as queue:
        with pytest.raises(Exception, match="on_flush"):
            await queue.flush()
    told = with_text(log, "on_flush of")
    assert (told["queue"], told["hook"]) == ("q", "on_flush")
    assert told["error_type"] == "LookupError"
    assert "Hooked" in told["handler"]


async def test_an_on_error_that_raises(log: pytest.LogCaptureFixture) -> None:
    def raising(_: list[int], __: BaseException) -> None:
        raise KeyError

    config = BatchQueueConfig[int](consumer=failing, on_error=raising)
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    told = with_text(log, "on_error raised")
    assert (told["queue"], told["items"], told["hook"]) == ("q", 1, "on_error")
    assert told["error_type"] == "KeyError"


async def test_a_call_that_takes_long(log: pytest.LogCaptureFixture) -> None:
    async def slow(_: list[int]) -> None:
        await asyncio.sleep(60)

    config = BatchQueueConfig[int](consumer=slow, slow_handler=10.0)
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    told = with_text(log, "has been inside for")
    assert (told["queue"], told["handler"]) == ("q", slow.__qualname__)
    assert 10.0 <= told["seconds"] < 60.0


async def test_items_that_are_left(log: pytest.LogCaptureFixture) -> None:
    async def stuck(_: list[int]) -> None:
        await asyncio.sleep(3600)

    config = BatchQueueConfig[int](consumer=stuck, shutdown_timeout=1.0, max_batch=1)
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(3))
    told = [fields_of(each) for each in log.records if " left" in each.getMessage()]
    assert {"queue": "q", "items": 3} in told


async def test_settings_that_a_manager_does_not_take(
    log: pytest.LogCaptureFixture,
) -> None:
    async with BatchQueueManager() as manager:
        await manager.get_or_create("q", BatchQueueConfig[int]())
        await manager.get_or_create("q", BatchQueueConfig[int](max_batch=5))
    assert with_text(log, "exists with other settings") == {"queue": "q"}


class Unformatted:
    """A value whose use would show."""

    def __str__(self) -> str:
        raise AssertionError


def test_a_level_that_is_off_makes_no_record(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL, "batchqueue_async")
    monkeypatch.setattr("batchqueue_async._log._known", lambda *_: pytest.fail("made"))
    logger.error("%s", Unformatted(), queue="q")
    assert own_lines(caplog.records) == []


def calls_that_log() -> Iterator[tuple[str, set[str]]]:
    """Each call of a logger of the library's, with its fields."""
    for path in sorted((ROOT / "batchqueue_async").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(
                node.func, ast.Attribute
            ):
                continue
            of = ast.unparse(node.func.value)
            if of == "logger" or of.endswith("failures"):
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                keywords = {each.arg or "**" for each in node.keywords}
                if node.func.attr in (
                    "error",
                    "warning",
                    "exception",
                    "critical",
                ) or node.func.attr in ("info", "debug"):
                    yield place, keywords


# What they log has no fields: nothing but a name, or a text made elsewhere.
PLAIN = ("ring/lifecycle.py", "batchqueue_async/_log.py", "spark/progress_listener.py")


def test_every_line_has_fields_and_all_of_them_are_documented() -> None:
    names = documented()
    assert {"queue", "handler", "items", "attempts", "events"} <= names
    places = list(calls_that_log())
    assert len(places) > 40
    for place, keywords in places:
        fields = keywords - NOT_FIELDS
        assert fields <= names | {"**"}, place
        plain = any(name in place for name in PLAIN)
        assert fields or "extra" in keywords or plain, place
