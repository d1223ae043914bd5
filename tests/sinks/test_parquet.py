"""What is special about the Parquet sink."""

import errno
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.parquet_staged import ParquetStagedSink

pytestmark = pytest.mark.real_time

FIRST = Epoch("query/with strange=name", 7)


def batch_of(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})


async def test_an_epoch_is_a_folder_with_a_manifest(tmp_path: Path) -> None:
    sink = ParquetEpochSink[Any](tmp_path / "new")
    await sink.begin(FIRST)
    await sink.write(FIRST, [batch_of(1, 2), batch_of(3)])
    await sink.commit(FIRST)

    folder = (
        tmp_path / "new" / "batchqueue_epoch=query%2Fwith%20strange%3Dname-00000007"
    )
    assert sink.folder(FIRST) == folder
    manifest = json.loads((folder / "_manifest.json").read_text())
    assert manifest == {
        "query": FIRST.query,
        "batch": 7,
        "rows": 3,
        "files": ["part-0.parquet"],
    }
    table = pq.read_table(tmp_path / "new")
    assert table.column("id").to_pylist() == [1, 2, 3]


async def test_rows_are_written_in_groups(tmp_path: Path) -> None:
    sink = ParquetEpochSink[Any](tmp_path, row_group=10)
    await sink.begin(FIRST)
    for start in range(0, 25, 5):
        await sink.write(FIRST, [batch_of(*range(start, start + 5))])
    await sink.commit(FIRST)

    metadata = pq.read_metadata(sink.folder(FIRST) / "part-0.parquet")
    groups = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert groups == [10, 10, 5]


async def test_a_record_batch_is_fitted_to_the_schema(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    sink = ParquetEpochSink[Any](tmp_path, schema=schema)
    await sink.begin(FIRST)
    batch = pa.RecordBatch.from_pydict({"name": ["a"], "id": pa.array([1], pa.int64())})
    await sink.write(FIRST, [(0, "tuple"), batch, {"id": 2, "name": None}])
    await sink.commit(FIRST)

    table = pq.read_table(sink.folder(FIRST) / "part-0.parquet", partitioning=None)
    assert table.schema.equals(schema)
    assert table.column("id").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("value", [1.5, Decimal("1.5")])
async def test_a_fraction_is_none_of_a_whole_number_s(
    tmp_path: Path, value: object
) -> None:
    schema = pa.schema([("id", pa.int64())])
    sink = ParquetEpochSink[Any](tmp_path, schema=schema)
    await sink.begin(FIRST)

    with pytest.raises(ValueError, match="column id must be of int64, got a value"):
        await sink.write(FIRST, [(1,), (value,)])
    await sink.abort(FIRST)


async def test_after_a_failed_write_the_epoch_has_to_come_again(
    tmp_path: Path,
) -> None:
    sink = ParquetEpochSink[Any](tmp_path)
    await sink.begin(FIRST)
    await sink.write(FIRST, [batch_of(1)])
    with pytest.raises(TypeError, match="a record batch, for a sink without a schema"):
        await sink.write(FIRST, [(2,)])
    with pytest.raises(BatchQueueError, match="a write of this epoch has failed"):
        await sink.commit(FIRST)
    await sink.abort(FIRST)

    assert not await sink.is_committed(FIRST)
    assert list((tmp_path / "_staging").iterdir()) == []


def full_once(
    monkeypatch: pytest.MonkeyPatch, of: type[object], name: str, *, after: int = 0
) -> None:
    """Have a method's call fail as on a full disk, in which room is made then."""
    calls, method = 0, getattr(of, name)

    def fails(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        nonlocal calls
        calls += 1
        if calls == after + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return method(*arguments, **keywords)

    monkeypatch.setattr(of, name, fails)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("schema", [None, batch_of().schema])
async def test_rows_that_a_commit_could_not_write_are_no_empty_epoch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    schema: pa.Schema | None,
) -> None:
    full_once(monkeypatch, pq.ParquetWriter, "write_table", after=after)
    sink = ParquetEpochSink[Any](tmp_path, schema=schema, row_group=2)
    await sink.begin(FIRST)
    if after:
        await sink.write(FIRST, [batch_of(1, 2)])
    await sink.write(FIRST, [batch_of(3)])
    with pytest.raises(OSError, match="No space left"):
        await sink.commit(FIRST)

    with pytest.raises(BatchQueueError, match=r"has failed \(OSError.*start again"):
        await sink.commit(FIRST)
    assert not await sink.is_committed(FIRST)
    await sink.abort(FIRST)


@pytest.mark.parametrize("renames", [0, 1])
async def test_a_commit_that_could_not_rename_is_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """The file is whole by then; the first rename is its own, the next the folder's."""
    sink = ParquetEpochSink[Any](tmp_path)
    await sink.begin(FIRST)
    await sink.write(FIRST, [batch_of(1, 2)])
    full_once(monkeypatch, Path, "rename", after=renames)
    with pytest.raises(OSError, match="No space left"):
        await sink.commit(FIRST)
    assert not await sink.is_committed(FIRST)

    await sink.commit(FIRST)
    assert pq.read_table(tmp_path)["id"].to_pylist() == [1, 2]


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="row_group must be >= 1, got 0"):
        ParquetEpochSink(tmp_path, row_group=0)
    with pytest.raises(TypeError, match=r"schema must be a pyarrow.Schema, got 'id'"):
        ParquetEpochSink(tmp_path, schema="id")
    with pytest.raises(ValueError, match="schema must be given together with to_row"):
        ParquetEpochSink[str](tmp_path, to_row=lambda it: (it,))


@pytest.mark.parametrize("sink", [ParquetEpochSink, ParquetStagedSink])
def test_what_pyarrow_would_refuse_later_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sink: Any,  # noqa: ANN401 - a class
) -> None:
    """It took a path that looks like a URI for one, below which folders were made."""
    monkeypatch.chdir(tmp_path)
    for uri in ("s3://bucket/out", "file:///tmp/out", "dbfs:/out"):
        with pytest.raises(ValueError, match=f"directory must .* no URI, got '{uri}'"):
            sink(uri)
    with pytest.raises(ValueError, match=r"directory must be a path .*, got ''"):
        sink("")
    for expanded in ("~/out", Path("~/out")):
        with pytest.raises(ValueError, match=r"must be a full path: .*, got '~/out'"):
            sink(expanded)
    with pytest.raises(ValueError, match=r"compression must be one .*, got 'nope'"):
        sink(tmp_path, compression="nope")
    for known in ("none", "SNAPPY", "zstd"):
        sink(tmp_path, compression=known)


async def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """Spark would read no file of the directory any more."""
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    sink = ParquetEpochSink[Any](tmp_path)
    await sink.begin(FIRST)

    with pytest.raises(ValueError, match="'a' must have another name than 'a'"):
        await sink.write(FIRST, [twice])
    with pytest.raises(ValueError, match="'a' must have another name than 'a'"):
        ParquetEpochSink[Any](tmp_path, schema=twice.schema)

    await sink.abort(FIRST)


@pytest.mark.parametrize("written", [0, 1])
async def test_a_second_process_at_an_epoch_is_told_of(
    tmp_path: Path, written: int
) -> None:
    """Its `begin` takes away what the first one had written."""
    first, second = (ParquetEpochSink[Any](tmp_path, row_group=1) for _ in range(2))
    await first.begin(FIRST)
    for number in range(written):
        await first.write(FIRST, [batch_of(number)])
    await second.begin(FIRST)

    async def go_on() -> None:
        await first.write(FIRST, [batch_of(2)])
        await first.commit(FIRST)

    with pytest.raises(FileNotFoundError, match="another process has begun the same"):
        await go_on()


async def test_what_another_attempt_has_committed_is_committed(tmp_path: Path) -> None:
    first, second = (ParquetEpochSink[Any](tmp_path) for _ in range(2))
    await first.begin(FIRST)
    await first.write(FIRST, [batch_of(1)])
    await second.begin(FIRST)
    await second.write(FIRST, [batch_of(1)])
    await second.commit(FIRST)

    await first.commit(FIRST)

    assert pq.read_table(tmp_path)["id"].to_pylist() == [1]


async def test_a_disk_that_is_gone_is_no_other_process(tmp_path: Path) -> None:
    sink = ParquetEpochSink[Any](tmp_path / "mounted", row_group=1)
    await sink.begin(FIRST)
    (tmp_path / "mounted").rename(tmp_path / "elsewhere")

    with pytest.raises(FileNotFoundError, match=r"such file.*mounted"):
        await sink.write(FIRST, [batch_of(1)])


async def test_record_batches_of_other_columns_are_refused_as_they_come(
    tmp_path: Path,
) -> None:
    sink = ParquetEpochSink[Any](tmp_path)
    await sink.begin(FIRST)
    await sink.write(FIRST, [batch_of(1)])

    told = r"must have the columns of the first, id: int64; got id: int32 not null"
    field = pa.field("id", pa.int32(), nullable=False)
    with pytest.raises(ValueError, match=told):
        await sink.write(
            FIRST, [pa.record_batch([pa.array([2], pa.int32())], pa.schema([field]))]
        )
