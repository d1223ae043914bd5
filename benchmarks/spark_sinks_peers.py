"""What one writes by hand to get a frame into PostgreSQL from the executors."""

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv

RESULT = "rows BIGINT"


def copied_by_hand(
    url: str, table: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: each record batch as CSV, straight into the table."""

    def copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        options, rows = pa.csv.WriteOptions(include_header=False), 0
        copy = f"COPY {table} FROM STDIN (FORMAT csv)"
        with (
            psycopg.connect(url) as connection,
            connection.cursor() as cursor,
            cursor.copy(copy) as stream,
        ):
            for batch in batches:
                text = io.BytesIO()
                pa.csv.write_csv(batch, text, options)
                stream.write(text.getbuffer())
                rows += batch.num_rows
        yield pa.record_batch({"rows": [rows]})

    return copied


def rows_by_hand(url: str, table: str) -> Callable[[Iterable[Any]], None]:
    """For `foreachPartition`: psycopg's COPY, row by row."""

    def written(rows: Iterable[Any]) -> None:
        with (
            psycopg.connect(url) as connection,
            connection.cursor() as cursor,
            cursor.copy(f"COPY {table} FROM STDIN") as stream,
        ):
            for row in rows:
                stream.write_row(row)

    return written
