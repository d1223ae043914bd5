"""The names of a directory's folders, and of the columns in its files."""

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks._parquet import directory, staged_file
from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
from batchqueue_async.sinks.staged import Attempt
from tests.sinks.places import EPOCH, attempt, batch, sealed
from tests.sinks.stores import SCHEMA

# Files are the same for every loop.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

FIRST, SECOND = Epoch("query", 0), Epoch("query", 1)


def files(path: Path, pattern: str) -> list[str]:
    return [found.name for found in path.glob(pattern)]


async def publish(path: Path, epoch: Epoch, rows: pa.RecordBatch) -> bool:
    sink, mine = ParquetStagedSink(path), attempt(epoch=epoch)
    try:
        await sink.stage(mine, [rows])
        return await sink.publish(epoch, [await sink.seal(mine)])
    finally:
        await sink.close()


def of(name: str) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array([100])})


async def write(path: Path, epoch: Epoch, rows: pa.RecordBatch) -> None:
    sink = ParquetEpochSink[Any](path)
    await sink.begin(epoch)
    await sink.write(epoch, [rows])
    await sink.commit(epoch)


async def test_a_column_epoch_is_a_column_like_any_other(tmp_path: Path) -> None:
    await publish(tmp_path, FIRST, of("epoch"))
    await write(tmp_path, SECOND, of("epoch"))

    assert pq.read_table(tmp_path)["epoch"].to_pylist() == [100, 100]


@pytest.mark.parametrize("name", ["batchqueue_epoch", "BatchQueue_EPOCH"])
async def test_a_column_of_the_folders_key_is_refused(
    tmp_path: Path, name: str
) -> None:
    told = f"column '{name}' must have another name: readers take batchqueue_epoch="
    with pytest.raises(ValueError, match=told):
        await publish(tmp_path, FIRST, of(name))
    with pytest.raises(ValueError, match=told):
        await write(tmp_path, FIRST, of(name))

    assert not files(tmp_path, "*=*")


async def test_a_directory_of_an_earlier_version_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers take one key only, so that it keeps the one that it has."""
    with monkeypatch.context() as earlier:
        earlier.setattr(directory, "KEY", "epoch")
        await publish(tmp_path, FIRST, batch(1))
    assert files(tmp_path, "*=*") == ["epoch=query-00000000"]

    assert not await publish(tmp_path, FIRST, batch(1))
    assert await publish(tmp_path, SECOND, batch(2))
    sink = ParquetEpochSink[Any](tmp_path)
    assert await sink.is_committed(FIRST)
    assert sink.folder(SECOND).name == "epoch=query-00000001"
    with pytest.raises(ValueError, match=r"column 'Epoch' must .* of a new directory"):
        await publish(tmp_path, Epoch("query", 2), of("Epoch"))

    table = pq.read_table(tmp_path)
    assert sorted(table["id"].to_pylist()) == [1, 2]
    assert "epoch" in table.column_names


async def test_a_directory_of_empty_epochs_has_columns(tmp_path: Path) -> None:
    sink: ParquetEpochSink[Any] = ParquetEpochSink(tmp_path / "a", schema=SCHEMA)
    for epoch in (FIRST, SECOND):
        await sink.begin(epoch)
        await sink.commit(epoch)
    await publish(tmp_path / "b", FIRST, batch(1).slice(1))
    await write(tmp_path / "c", FIRST, batch(1).slice(1))

    assert pq.read_table(tmp_path / "a", partitioning=None).schema.equals(SCHEMA)
    for name in "bc":
        table = pq.read_table(tmp_path / name, partitioning=None)
        assert (table.num_rows, table.column_names) == (0, ["id", "word"])


async def test_an_epoch_with_rows_has_no_file_without(tmp_path: Path) -> None:
    sink, mine, other = ParquetStagedSink(tmp_path), attempt(0), attempt(1)
    await sink.stage(mine, [batch(1).slice(1)])
    await sink.stage(other, [batch(1)])
    tokens = [await sink.seal(mine), await sink.seal(other)]
    assert await sink.publish(mine.epoch, tokens)
    await sink.close()

    assert len(files(tmp_path, "*/*.parquet")) == 1
    assert not files(tmp_path, "_staged/*")


@pytest.mark.parametrize("other", ["part-0.parquet", "day=1/part-0.parquet", "epoch"])
async def test_others_files_do_not_vanish_from_what_spark_reads(
    tmp_path: Path, other: str
) -> None:
    """Beside folders with a key it passes over files without one."""
    for path, begin in (("epochs", write), ("staged", publish)):
        directory = tmp_path / path
        (directory / other).parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), directory / other)
        if other != "epoch":  # which is neither a Parquet file nor a folder with a key
            told = "must be empty or the sink's own, got '.*' in it, which Spark would"
            with pytest.raises(ValueError, match=told):
                await begin(directory, FIRST, of("id"))
            (directory / other).rename(tmp_path / f"of-{path}")
            for left in directory.iterdir():
                left.rmdir()

        await begin(directory, FIRST, of("id"))
        (folder,) = directory.glob("*=*")
        assert folder.name == "batchqueue_epoch=query-00000000"


@pytest.mark.parametrize("left", ["nothing", "the data"])
async def test_what_is_not_committed_any_more_is_not_lost(
    tmp_path: Path, left: str
) -> None:
    """Of a folder that somebody emptied, or took only the manifest out of."""
    for path, begin in (("epochs", write), ("staged", publish)):
        directory = tmp_path / path
        await begin(directory, FIRST, of("id"))
        for found in directory.glob("*=*/*"):
            if left == "nothing" or found.name.startswith("_"):
                found.unlink()
        sink = ParquetEpochSink[Any](directory)
        assert await sink.is_committed(FIRST) is (left == "the data")
        await begin(directory, FIRST, of("id"))

        assert await sink.is_committed(FIRST)
        assert pq.read_table(directory)["id"].to_pylist() == [100]


async def test_a_query_that_no_folder_can_be_named_after_is_refused(
    tmp_path: Path,
) -> None:
    """At once, and not when its rows were written."""
    long = Epoch("\u00fc" * 50, 0)
    epochs: ParquetEpochSink[Any] = ParquetEpochSink(tmp_path, schema=SCHEMA)
    staged = ParquetStagedSink(tmp_path)
    for refused in (
        epochs.begin(long),
        epochs.is_committed(long),
        staged.stage(attempt(epoch=long), [batch(1)]),
    ):
        with pytest.raises(ValueError, match="query must be so short that its folder"):
            await refused
    assert files(tmp_path, "**/*.parquet") == []


@pytest.mark.parametrize("renames", [1, 2])
async def test_a_publish_that_failed_is_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """As on a full disk, where somebody makes room: the files are there still.

    It was full when the second file was to be renamed, or the folder with both.
    """
    sink = ParquetStagedSink(tmp_path)
    tokens = [await sealed(sink, attempt(number), number) for number in range(2)]
    left, rename = renames, Path.rename

    def fails(path: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left == -1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="No space left"):
        await sink.publish(EPOCH, tokens)
    assert not await sink.is_published(EPOCH)

    assert await sink.publish(EPOCH, tokens)
    assert pq.read_table(tmp_path)["id"].to_pylist() == [0, 1]
    assert not files(tmp_path, "_staged/*")
    await sink.close()


async def test_what_waits_is_deeper_than_what_is_committed(tmp_path: Path) -> None:
    """Not all readers pass over folders whose names start with an underscore."""
    await write(tmp_path, FIRST, batch(1))
    sink, staged = ParquetEpochSink[Any](tmp_path), ParquetStagedSink(tmp_path)
    await sink.begin(SECOND)
    await sink.write(SECOND, [batch(2)])
    await sealed(staged, attempt(), 3)

    assert files(sink.folder(FIRST), "*.parquet") == files(tmp_path, "*/*.parquet")
    assert len(files(tmp_path, "**/*.parquet")) > 1
    await sink.abort(SECOND)
    await staged.close()


async def test_a_name_of_two_columns_is_refused(tmp_path: Path) -> None:
    """Nobody could read them, with whatever settings."""
    sink = ParquetStagedSink(tmp_path)
    twice = pa.record_batch([pa.array([1]), pa.array([2])], names=["id", "id"])
    for exact in (False, True):
        mine = Attempt(EPOCH, "run", 0, f"{exact}", is_case_sensitive=exact)
        with pytest.raises(ValueError, match=r"another name than 'id'$"):
            await sink.stage(mine, [twice])
    await sink.close()


async def test_an_epoch_of_no_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one column or more, got one with 0"):
        await write(tmp_path, FIRST, pa.RecordBatch.from_arrays([], names=[]))


async def test_what_counts_as_published_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who renamed it may have died before he waited, and Spark forgets it now."""
    await publish(tmp_path, EPOCH, batch(1))
    forced: list[Path] = []
    monkeypatch.setattr(directory, "force_to_disk", forced.append)
    assert await ParquetStagedSink(tmp_path).is_published(EPOCH)
    assert forced == [tmp_path]


async def test_a_path_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="directory must be a path in UTF-8, which"):
        ParquetStagedSink(tmp_path / os.fsdecode(b"\xff"))


def fill_disk(path: Path) -> None:
    """Have the file that is being written be on a disk without room."""
    (file,) = path.rglob(".part-0*")
    file.unlink()
    file.symlink_to("/dev/full")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full disk")
async def test_a_full_disk_is_told_by_its_folder(tmp_path: Path) -> None:
    sink = ParquetEpochSink[Any](tmp_path)
    await sink.begin(FIRST)
    await sink.write(FIRST, [batch(1)])
    fill_disk(tmp_path)

    with pytest.raises(OSError, match=f"'{tmp_path}/_staging/") as failed:
        await sink.commit(FIRST)
    assert failed.value.errno == errno.ENOSPC


@pytest.fixture
def as_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders can't be opened, nor what is open for reading be forced to the disk."""
    open_here, force_here = os.open, os.fsync

    def open_files(path: Path, flags: int, *arguments: Any) -> int:  # noqa: ANN401
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_here(path, flags, *arguments)

    def force_if_writable(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        force_here(descriptor)

    monkeypatch.setattr(os, "open", open_files)
    monkeypatch.setattr(shutil, "_use_fd_functions", False)  # As it is there.
    monkeypatch.setattr(os, "fsync", force_if_writable)
    monkeypatch.setattr(staged_file, "_IS_WINDOWS", True)


@pytest.mark.usefixtures("as_on_windows")
async def test_epochs_are_published_on_windows_too(tmp_path: Path) -> None:
    assert await publish(tmp_path, FIRST, of("value"))
    assert not await publish(tmp_path, FIRST, of("value"))
    await write(tmp_path, SECOND, of("value"))

    assert pq.read_table(tmp_path)["value"].to_pylist() == [100, 100]
