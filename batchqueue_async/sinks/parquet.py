"""A directory of Parquet files, each epoch in it exactly once."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from anyio import to_thread

from batchqueue_async._extras import missing
from batchqueue_async._validation import refuse, require_int
from batchqueue_async._wording import kind_of

try:
    import pyarrow as pa
except ModuleNotFoundError as _error:
    raise missing(_error, "a sink of Parquet files", "parquet") from _error

from ._parquet.columns import require_names_that_differ
from ._parquet.directory import ParquetDirectory, Part
from ._parquet.staged_file import StagedFile
from .checks import require_path, require_to_row
from .epoch_attempts import StagingEpochSink
from .epochs import Epoch
from .exact_casts import exact_cast
from .exact_values import exact_for
from .rows import RowReader, T, ToRow, python_rows, require_columns_of, selected


@dataclass(slots=True)
class _Attempt:
    """An attempt at an epoch: a run of its own, of one file."""

    run: str
    file: StagedFile
    # A commit that was cancelled leaves its thread at work, and the next one waits.
    publishing: threading.Lock


class ParquetEpochSink(StagingEpochSink[T, _Attempt]):
    """Writes each epoch as a folder of Parquet files and a manifest.

    The folder is `batchqueue_epoch=<query>-<batch>` in `directory`. What passes over
    names with an underscore, as Spark and pyarrow do, sees all committed epochs and
    nothing else, with a column `batchqueue_epoch` if it knows such names; no column of
    rows may be called so. DuckDB and Polars see the same by `directory/*/*.parquet`;
    given the directory, they read what waits, too. In one that version 0.1 began the
    name is `epoch`, still.

    Why it is exactly once: an attempt's files are written to a folder whose name starts
    with an underscore, which those pass over. `commit` adds the manifest, forces all
    of it to the disk, and gives the folder its name in one rename. So the folder is
    data and fence in one; a second rename to the same name fails.

    What it costs: no row is written twice. A commit waits for the disk. Files are as
    large as an epoch, so small epochs make small files, which somebody has to merge one
    day. `directory` must be on a file system where renaming a folder is atomic: a disk
    of the machine, not an object store. Rows wait in memory until a row group is full.
    A directory is one table: two sinks for it take the same epoch once between them.

    Items are record batches of pyarrow; with a `schema` also tuples, lists or mappings
    in its order; anything else with `to_row`, too. Blocking calls run in threads, one
    at a time. A `write` that fails or is cancelled makes `commit` raise, since rows
    cannot be taken out of a file again: the epoch has to come again.

    Args:
        directory: Where the folders go; made when it is missing.
        schema: Of the files; None for that of an epoch's first record batch.
        to_row: Makes a row of an item: a tuple or list, or a mapping by column.
        row_group: How many rows are written, and kept in memory, at a time.
        compression: As pyarrow's `ParquetWriter` takes it. Columns whose values repeat
            in the first rows get a dictionary, too.

    Attributes:
        columns: The names of a row's values; None with `to_row`, or without a schema.

    Raises:
        TypeError, ValueError: An argument is of the wrong kind, or has a wrong value.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        schema: pa.Schema | None = None,
        to_row: ToRow[T] | None = None,
        row_group: int = 131_072,
        compression: str = "zstd",
    ) -> None:
        require_path("directory", directory)
        require_to_row(to_row)
        require_int("row_group", row_group, at_least=1)
        super().__init__()
        if schema is not None and not isinstance(schema, pa.Schema):
            refuse("schema", "a pyarrow.Schema", schema, TypeError)
        if schema is None and to_row is not None:
            refuse("schema", "given together with to_row", schema)
        if schema is not None:
            require_names_that_differ(schema.names)
        self._schema = schema
        self._to_row = to_row
        self.columns: tuple[str, ...] | None = None
        if schema is not None and to_row is None:
            self.columns = tuple(schema.names)
        self._directory = ParquetDirectory(
            directory, "_staging", row_group, compression
        )

    async def is_committed(self, epoch: Epoch) -> bool:
        """Return whether the epoch's folder is there."""
        return await to_thread.run_sync(self._directory.has_own, epoch)

    def folder(self, epoch: Epoch) -> Path:
        """Return the epoch's folder, which is there if the epoch is committed."""
        return self._directory.folder(epoch)

    async def _start(self, epoch: Epoch) -> _Attempt:
        def start() -> _Attempt:
            # An earlier attempt that is still at work finds its folder gone.
            self._directory.clear(epoch)
            run = uuid4().hex
            self._directory.begin_run(epoch, run)
            file = self._directory.new_file(epoch, run, "part-0")
            return _Attempt(run, file, threading.Lock())

        return await to_thread.run_sync(start)

    async def _stage(self, attempt: _Attempt, items: list[T]) -> None:
        attempt.file.refuse_broken()

        def write() -> None:
            with self._refusing_second(attempt):
                for batch in self._batches(items):
                    if not attempt.file.has_columns:
                        self._directory.require_names(batch.schema.names)
                        require_names_that_differ(batch.schema.names)
                    attempt.file.write([batch])

        try:
            await to_thread.run_sync(write)
        except BaseException as error:
            attempt.file.failure = attempt.file.failure or error
            raise

    async def _publish(self, epoch: Epoch, attempt: _Attempt) -> None:
        attempt.file.refuse_broken()

        def publish() -> None:
            file = attempt.file
            if not file.has_columns:
                # Raises if the run is over, even if there is nothing to be written.
                known = [self._schema] if self._schema is not None else []
                file.write(pa.RecordBatch.from_pylist([], each) for each in known)
            file.seal()
            part = Part("part-0.parquet", file.path, file.rows)
            self._directory.publish(epoch, [part] if file.has_columns else [])

        def publish_once() -> None:
            with attempt.publishing, self._refusing_second(attempt):
                try:
                    publish()
                except FileNotFoundError:
                    # What another attempt has committed meanwhile is the same.
                    if not self._directory.has_own(epoch):
                        raise

        await to_thread.run_sync(publish_once)

    @contextmanager
    def _refusing_second(self, attempt: _Attempt) -> Iterator[None]:
        """Tell it in words if another process has taken the attempt's folder away."""
        try:
            yield
        except FileNotFoundError:
            folder = attempt.file.path.parent
            if folder.exists() or not self._directory.path.exists():
                raise  # for instance, the disk is gone
        else:
            return
        told = (
            "the folder of this attempt is gone: another process has begun the same"
            " epoch, such as a second driver of one checkpoint"
        )
        raise FileNotFoundError(errno.ENOENT, told, str(folder))

    async def _discard(self, epoch: Epoch, attempt: _Attempt) -> None:
        def discard() -> None:
            attempt.file.remove()
            self._directory.clear_run(epoch, attempt.run)

        await to_thread.run_sync(discard)

    def _batches(self, items: Iterable[T]) -> Iterator[pa.RecordBatch]:
        rows: list[Any] = []
        for item in items:
            if self._to_row is None and isinstance(item, pa.RecordBatch):
                yield from self._of_rows(rows)
                rows = []
                require_columns_of(item)
                yield item if self._schema is None else _fitted(item, self._schema)
            else:
                rows.append(item)
        yield from self._of_rows(rows)

    def _of_rows(self, items: list[Any]) -> Iterator[pa.RecordBatch]:
        if not items:
            return
        if self._schema is None:
            rule = "a record batch, for a sink without a schema"
            msg = f"an item must be {rule}, got {kind_of(items[0])}"
            raise TypeError(msg)
        reader = RowReader(tuple(self._schema.names), self._to_row, python_rows)
        columns = zip(*reader.rows(items), strict=True)
        arrays = [
            _made(field, partial(_exact_array, column, field.type))
            for column, field in zip(columns, self._schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _exact_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    exact = exact_for(kind)
    found = values if exact is None else exact(values)
    if found is None:
        raise ValueError
    return pa.array(found, kind)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = selected(batch, schema.names).columns
    for field, column in zip(schema, columns, strict=True):
        if column.null_count and not field.nullable:
            refuse(f"column {field.name}", "without nulls", "null")
    arrays = [
        _made(field, partial(exact_cast, column, field.type))
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _made(field: pa.Field, make: Callable[[], pa.Array]) -> pa.Array:
    """Return the column; what pyarrow says of a bad value would quote it."""
    try:
        return make()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        refused = TypeError if isinstance(error, TypeError) else ValueError
        why = type(error).__name__
    # Not in the `except`: the error would be this one's context, and quote the value.
    msg = f"column {field.name} must be of {field.type}, got a value that isn't ({why})"
    raise refused(msg)
