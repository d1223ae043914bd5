"""No value becomes another one in silence, by the type of a column in SQLite."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from tests.sinks.databases import Sqlite
from tests.sinks.places import attempt

# The threads' work is the same for every loop.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

Way: TypeAlias = Callable[[Sqlite, pa.RecordBatch], Awaitable[None]]

EPOCH = Epoch("query", 0)


async def publish(file: Sqlite, rows: pa.RecordBatch) -> None:
    sink, mine = SqliteStagedSink(file.path, "t"), attempt(epoch=EPOCH)
    try:
        await sink.stage(mine, [rows])
        await sink.publish(EPOCH, [await sink.seal(mine)])
    finally:
        await sink.close()


async def commit(file: Sqlite, rows: pa.RecordBatch) -> None:
    sink = SqliteEpochSink[Any](file.path, "t", ("v",))
    try:
        await sink.begin(EPOCH)
        await sink.write(EPOCH, [rows])
        await sink.commit(EPOCH)
    finally:
        await sink.close()


async def seen(file: Sqlite, declared: str, way: Way, *values: object) -> list[Any]:
    await file.run("DROP TABLE IF EXISTS t")
    await file.run(f"CREATE TABLE t (V {declared})")
    await way(file, pa.record_batch({"v": pa.array(values)}))
    return [value for (value,) in await file.run("SELECT v FROM t ORDER BY rowid")]


@pytest.mark.parametrize("way", [publish, commit])
async def test_a_text_that_would_become_another_is_refused(
    tmp_path: Path, way: Way
) -> None:
    file = Sqlite(tmp_path / "store.db")
    for declared in ("STRING", "Uuid", '"JSON 100%"'):
        told_type = declared.strip('"').upper()
        for text in ("00501", "1e5", "1.50", "1.0", " 7 ", "+1", "-0", "9" * 19):
            told = "column v must be no text that looks like a number, got one, of whi"
            with pytest.raises(ValueError, match=told) as error:
                await seen(file, declared, way, "a", text)
            assert f"of type {told_type}: declare it" in str(error.value)
        kept = ["a", "0x10", "1-2", "", "501", "-1.5", "inf", None]
        found = await seen(file, declared, way, *kept)
        assert [value if value is None else str(value) for value in found] == kept


async def test_a_text_of_many_digits_is_looked_at_at_once(tmp_path: Path) -> None:
    file = Sqlite(tmp_path / "store.db")
    digits = "1" * 8_000
    texts = [f"{digits}x", f"{digits}.{digits}x", f"1e{digits}x", f"-.{digits}x"]
    began = time.process_time()
    assert await seen(file, "JSON", commit, *texts) == texts
    # Of this process's own time, whatever else the machine does; it takes 0.01 s.
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("way", [publish, commit])
async def test_who_asks_for_texts_or_for_numbers_gets_them(
    tmp_path: Path, way: Way
) -> None:
    file = Sqlite(tmp_path / "store.db")
    for declared in ("TEXT", "VARCHAR(9)", ""):
        assert await seen(file, declared, way, "00501") == ["00501"]
    for declared in ("INTEGER", "DECIMAL(10, 2)", "REAL"):
        assert await seen(file, declared, way, "007", "1.50") == [7, 1.5]
    assert await seen(file, "ANY", way, "501") == [501]


@pytest.mark.parametrize("way", [publish, commit])
async def test_a_double_keeps_its_digits_as_a_text(tmp_path: Path, way: Way) -> None:
    file = Sqlite(tmp_path / "store.db")
    found = await seen(file, "TEXT", way, 1 / 3, 0.5, 1e22)
    assert found == ["0.3333333333333333", "0.5", "1e+22"]
