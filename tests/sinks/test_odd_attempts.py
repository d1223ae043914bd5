"""Attempts of any name, and what may be staged in them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks.staged import Attempt, StagedSink, Token
from tests.sinks.conftest import NewStagedSink
from tests.sinks.places import (
    EPOCH,
    Place,
    SqlitePlace,
    attempt,
    batch,
    make_postgres_place,
    sealed,
)
from tests.sinks.test_staged import seal_late

pytestmark = [pytest.mark.real_time]

NAMES = ("attempt-1", "attempt-2", "Attempt-1", "a/b", "../x", "..", "'; --", "ü" * 300)


def named(name: str, run: str = "run") -> Attempt:
    return Attempt(EPOCH, run, 0, name)


async def test_names_need_only_be_unique(
    place: Place, open_sink: NewStagedSink
) -> None:
    sink = open_sink()
    tokens = [await sealed(sink, named(name), n) for n, name in enumerate(NAMES)]
    late, abandoned = named("late"), named("abandoned")
    await sink.stage(late, [batch(100)])
    await sink.stage(abandoned, [batch(101)])
    await sink.abandon(abandoned)

    assert await open_sink().publish(EPOCH, tokens)
    await seal_late(sink, late)

    assert await place.ids() == [*range(len(NAMES))]
    assert await place.traces() == 0


async def test_a_name_that_another_process_has_used_is_refused(
    place: Place, open_sink: NewStagedSink
) -> None:
    """Its rows would take the place of the other's, or come beside them."""
    token = await sealed(open_sink(), named("one"), 1)
    other = open_sink()
    with pytest.raises((BatchQueueError, FileExistsError), match="before"):
        await other.stage(named("one"), [batch(2)])

    assert await open_sink().publish(EPOCH, [token])
    assert await place.ids() == [1]
    await other.close()


async def test_a_run_of_any_name_is_discarded_alone(
    place: Place, open_sink: NewStagedSink
) -> None:
    for run in NAMES:
        await sealed(open_sink(), named(f"of {run}", run), 100)
    kept = await sealed(open_sink(), named("kept", "."), 1)

    for run in NAMES:
        await open_sink().discard(EPOCH, run)
    assert await open_sink().publish(EPOCH, [kept])

    assert await place.ids() == [1]
    assert await place.traces() == 0


async def test_staging_nothing_is_nothing(
    place: Place, open_sink: NewStagedSink
) -> None:
    sink, mine = open_sink(), attempt()
    await sink.stage(mine, [])
    await sink.stage(mine, [batch(1).slice(0, 0)])
    await sink.stage(mine, [batch(1)])
    await sink.stage(mine, [])

    assert await sink.publish(EPOCH, [await sink.seal(mine)])

    assert await place.ids() == [1]


@pytest.mark.parametrize(
    "items, got", [([(7, "w7")], "a tuple"), ([batch(1), None], "None"), ({}, "a dict")]
)
async def test_other_than_record_batches_is_refused(
    open_sink: NewStagedSink,
    items: Any,  # noqa: ANN401 - what is no list of record batches
    got: str,
) -> None:
    with pytest.raises(TypeError) as raised:
        await open_sink().stage(attempt(), items)

    told = "items must be a list of record batches of pyarrow, got "
    assert str(raised.value).removesuffix(" in it") == told + got


async def test_a_record_batch_without_columns_is_refused(
    open_sink: NewStagedSink,
) -> None:
    """Readers of a folder may take the first file's columns for those of all."""
    sink, mine = open_sink(), attempt()

    with pytest.raises(ValueError, match="one column or more, got one with 0"):
        await sink.stage(mine, [pa.RecordBatch.from_arrays([], names=[])])
    await sink.abandon(mine)


async def test_a_name_that_was_sealed_is_not_taken_again(
    place: Place, open_sink: NewStagedSink
) -> None:
    """Else a token would stand for rows that came later."""
    sink, mine = open_sink(), attempt()
    token = await sealed(sink, mine, 1)

    with pytest.raises((FileExistsError, BatchQueueError)) as raised:
        await sink.stage(mine, [batch(2)])
    assert "name" in str(raised.value)
    await sink.abandon(mine)

    assert await sink.publish(EPOCH, [token])
    assert await place.ids() == [1]


@pytest.fixture(params=["sqlite", "postgres"])
async def table(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[StagedSink[Any]]:
    """A sink of a table of `id` and `word`."""
    if request.param == "sqlite":
        sink: StagedSink[Any] = SqlitePlace(tmp_path / "store.db").sink()
    else:
        server = request.getfixturevalue("postgres_dsn")
        sink = (await make_postgres_place(server)).sink()
    yield sink
    await sink.close()


async def test_attempts_of_different_columns_are_not_published(
    place: Place, open_sink: NewStagedSink
) -> None:
    """The second one's words would be nulls, or all words left out by a reader."""
    sink = open_sink()
    tokens = [
        await sealed(sink, attempt(), 2),
        await sealed_as(sink, attempt(), batch(1).select(["id"])),
    ]

    for some in (tokens, tokens[::-1]):
        with pytest.raises(ValueError, match="tokens must be of rows with the same"):
            await sink.publish(EPOCH, some)
    assert not await sink.is_published(EPOCH)

    assert await sink.publish(EPOCH, tokens[:1])
    assert await place.ids() == [2]


async def test_columns_in_another_order_or_case_are_the_same(
    table: StagedSink[Any],
) -> None:
    other = batch(1).rename_columns(["ID", "WORD"]).select(["WORD", "ID"])
    tokens = [
        await sealed(table, attempt(), 2),
        await sealed_as(table, attempt(), other),
    ]

    assert await table.publish(EPOCH, tokens)


async def test_an_attempt_has_one_set_of_columns(table: StagedSink[Any]) -> None:
    twice = pa.record_batch([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(ValueError, match="columns must be of different names"):
        await table.stage(attempt(), [twice])
    mine = attempt()
    await table.stage(mine, [batch(1)])
    with pytest.raises(ValueError, match="with the columns"):
        await table.stage(mine, [batch(2).select(["id"])])


async def sealed_as(
    sink: StagedSink[Any], mine: Attempt, rows: pa.RecordBatch
) -> Token:
    await sink.stage(mine, [rows])
    return await sink.seal(mine)


@pytest.mark.parametrize("ending", ["seal", "abandon", "close", "a stage that fails"])
async def test_an_attempt_that_has_ended_gets_no_receipt_for_no_rows(
    place: Place, open_sink: NewStagedSink, ending: str
) -> None:
    """Published, that would be its epoch without its rows."""
    sink, mine = open_sink(), attempt()
    await sink.stage(mine, [batch(1)])
    if ending == "close":
        await sink.close()
    elif ending == "a stage that fails":
        with pytest.raises(TypeError):
            await sink.stage(mine, [batch(2), None])
    else:
        await getattr(sink, ending)(mine)

    for _ in range(2):
        with pytest.raises(BatchQueueError, match="which has ended"):
            await sink.seal(mine)

    await sink.abandon(mine)


async def test_nor_does_one_that_was_removed(
    open_sink: NewStagedSink,
) -> None:
    sink, mine = open_sink(), attempt()
    await sink.stage(mine, [batch(1)])
    await open_sink().discard(EPOCH, mine.run)

    for _ in range(2):
        with pytest.raises((FileNotFoundError, BatchQueueError)):
            await sink.seal(mine)

    await sink.abandon(mine)
