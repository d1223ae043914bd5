"""`batchqueue top`: names can be read, rows stay where they are, all fits."""

import io
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    PartitionPolicy,
    round_robin,
)
from batchqueue_async.telemetry import _top
from batchqueue_async.telemetry._feed import Feed, Sample
from batchqueue_async.telemetry._top import Picture, show

LONG = ("METRICS_L1_AGGREGATION", "METRICS_L2_PERSISTENCE", "JDBC_BATCH_PERSISTENCE")


def drawn(sample: Sample, width: int = 80, height: int = 24, **how: Any) -> list[str]:  # noqa: ANN401
    file = io.StringIO()
    console = Console(width=width, height=height, file=file)
    console.print(Picture(sample, **how))
    return file.getvalue().splitlines()


async def busy_sample() -> Sample:
    """Queues as those of `make demo`: long names, and numbers of five digits."""
    config = BatchQueueConfig[int](consumer=lambda _: None, buffer_size=100_000)
    async with BatchQueueManager() as manager:
        for name in LONG:
            queue = await manager.create(name, config)
            await queue.produce_many(range(12_345))
        return Feed(manager).sample()


async def test_long_names_can_be_read_in_eighty_columns() -> None:
    text = "\n".join(drawn(await busy_sample()))
    assert [name for name in LONG if name not in text] == []


async def test_names_are_shown_and_do_nothing_to_the_terminal() -> None:
    """Such as a tenant's, of whom a program makes a queue."""

    def consume(_: list[int]) -> None: ...

    consume.__qualname__ = "h\x1b[2J"
    name = "a\x1b]0;b\x07\n\u202ec\x9b"
    config = BatchQueueConfig[int](consumer=consume)
    async with BatchQueue(name, config) as queue:
        lines = drawn(Feed(queue).sample(), width=120)
    text = "\n".join(lines)
    assert r"a\x1b]0;b\x07\n\u202ec\x9b" in text
    assert r"h\x1b[2J" in text
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & {*text}


async def adaptive_sample() -> Sample:
    """A queue that finds both by trying."""
    config = BatchQueueConfig[int](
        consumer=lambda _: None,
        max_batch="auto",
        drain_tasks=DrainTaskPolicy.adaptive(1, 8),
        partitions=PartitionPolicy.fixed(16),
        selector=round_robin,
    )
    async with BatchQueue("found", config) as queue:
        await queue.produce_many(range(100))
        return Feed(queue).sample()


async def test_why_limits_are_what_they_are_is_told() -> None:
    sample = await adaptive_sample()
    (queue,) = sample["queues"]
    queue["drain_task_limit"]["why"] = "items had to be tried again"
    queue["handlers"][0]["limit"]["why"] = "the handler was asked to wait"
    for width, height in ((80, 24), (120, 50)):
        lines = drawn(sample, width, height, fits=True)
        text = "\n".join(lines)
        assert "1 at work: items had to be tried again" in text
        assert "limit: the handler was asked to wait" in text
        assert len(lines) <= height
    queue["handlers"] = [queue["handlers"][0] | {"name": name} for name in "abcde"]
    text = "\n".join(drawn(sample))
    assert "c: the handler was asked to wait" in text
    assert "d: the handler" not in text


async def test_it_fits_a_small_terminal_with_what_happened() -> None:
    sample = await busy_sample()
    sample["events"] = [
        {"time": 0.0, "queue": "q", "kind": "failed", "text": f"{n} failed"}
        for n in range(8)
    ]
    for height in (24, 50):
        lines = drawn(sample, height=height, fits=True)
        assert len(lines) <= height
        assert any("7 failed" in line for line in lines)
        assert any(line.startswith("╭─ METRICS_L1") for line in lines)


async def test_what_was_lost_gets_a_column_where_there_is_any() -> None:
    sample = await busy_sample()
    assert "dropped" not in "".join(drawn(sample))
    assert "dropped" in "".join(drawn(sample, width=120))
    sample["queues"][1]["dropped"] = 7
    assert "dropped" in "".join(drawn(sample))


async def test_details_stay_with_a_queue_that_is_nearly_the_fullest() -> None:
    sample = await busy_sample()
    shown = []
    for waiting in ((10, 9), (9, 10), (4, 10)):
        one, other = sample["queues"][:2]
        one["waiting"], other["waiting"] = waiting
        sample["queues"][2]["waiting"] = 0
        shown.append(sample | {"queues": [dict(one), dict(other)]})
    file = io.StringIO()
    show(shown, Console(width=100, height=40, file=file, force_terminal=True))
    last = file.getvalue()
    titles = [line for line in last.splitlines() if "╭─ METRICS" in line]
    assert ["L1" in each for each in titles] == [True, True, False, False]
    assert "shows its queues no more" in last


@pytest.mark.parametrize(
    "age, says", [(0.0004, "400 us"), (0.25, "250 ms"), (90.5, "90.5 s")]
)
async def test_how_long_the_oldest_item_waits_is_shown(age: float, says: str) -> None:
    sample = await busy_sample()
    for queue in sample["queues"]:
        queue["oldest_age"] = 0.0
    assert "oldest" not in "".join(drawn(sample))
    assert "oldest" in "".join(drawn(sample, width=120))
    sample["queues"][0]["oldest_age"] = age
    text = "\n".join(drawn(sample))
    assert [name for name in LONG if name not in text] == []
    row, *others = [line for line in text.splitlines() if "12,345" in line][:3]
    assert says in row
    assert all(unit not in "".join(others) for unit in (" us ", " ms ", " s "))
    del sample["queues"][0]["oldest_age"]  # as an earlier version's process
    assert "oldest" not in "".join(drawn(sample))


@pytest.mark.parametrize(
    "rate, says", [(0.0, "0"), (0.4, "0.4"), (9.96, "10.0"), (1234.5, "1,234")]
)
async def test_a_slow_queue_does_not_look_as_if_it_stood(
    rate: float, says: str
) -> None:
    sample = await busy_sample()
    sample["queues"][0]["rates"]["handled"] = rate
    row = next(line for line in drawn(sample) if "L1_AGG" in line)
    assert row.split()[3] == says


@pytest.mark.parametrize(
    "seconds, says", [(1.25e-5, "12.5 us"), (0.0012, "1.2 ms"), (2.5, "2.5 s")]
)
async def test_calls_have_a_unit(seconds: float, says: str) -> None:
    sample = await busy_sample()
    assert "per call" not in "".join(drawn(sample))
    sample["queues"][0]["handlers"][0]["mean_seconds"] = seconds
    sample["queues"][0]["waiting"] += 1
    assert says in "".join(drawn(sample))


async def test_nothing_and_what_is_closed_are_said() -> None:
    assert "no queues" in "".join(drawn(Feed(BatchQueueManager()).sample()))
    queue = BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None))
    feed = Feed(queue)
    assert "not started" in "".join(drawn(feed.sample()))
    async with queue:
        assert not feed.sample(now=True)["queues"][0]["state"]
    assert "closed" in "".join(drawn(feed.sample(now=True)))


async def test_one_picture_is_drawn_of_a_process_that_is_killed_in_between() -> None:
    """`--once` waits for rates; it drew nothing, as if there were no queues."""
    sample = await busy_sample()
    for samples in ([sample], [sample, sample]):
        file = io.StringIO()
        show(samples, Console(width=80, file=file), once=True)
        assert file.getvalue().count(LONG[0]) == 2, "in the table, and in detail"


@pytest.mark.real_time
async def test_of_a_process_that_is_stopped_it_says_since_when_there_is_no_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last rates stood there for hours, as if all was well."""
    monkeypatch.setattr(_top, "_LATE", 0.1)
    sample, file = await busy_sample(), io.StringIO()
    told: list[bool] = []

    def samples() -> Iterator[Sample]:
        yield sample
        end = time.monotonic() + 30.0
        while "no news since" not in file.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
        told.append("no news since" in file.getvalue())

    show(samples(), Console(width=100, height=40, file=file, force_terminal=True))
    assert told == [True]
    _, _, last = file.getvalue().rpartition("no news since")
    assert "queues no more" in last, "the last picture has none to wait for"
    assert "╭─ queues ─" in last


async def test_a_picture_that_was_just_taken_is_not_late() -> None:
    sample = await busy_sample()
    for came, is_late in ((time.monotonic(), False), (time.monotonic() - 60, True)):
        lines = drawn(sample, fits=True, came=came)
        assert ("no news since" in lines[0]) is is_late
