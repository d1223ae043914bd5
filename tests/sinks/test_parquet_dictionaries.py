"""Which columns of a Parquet file get a dictionary: those whose values repeat."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
from tests.sinks.places import EPOCH, attempt

pytestmark = pytest.mark.real_time

ROWS = 20_000
REPEATED = [n // 4 % 100 for n in range(ROWS)]


async def dictionaries(directory: Path, columns: dict[str, Any]) -> set[str]:
    """Write a file; return which of its columns have a dictionary."""
    sink = ParquetStagedSink(directory)
    mine = attempt()
    await sink.stage(mine, [pa.record_batch(columns)])
    await sink.publish(EPOCH, [await sink.seal(mine)])
    await sink.close()
    (path,) = sink.folder(EPOCH).glob("*.parquet")
    file = pq.ParquetFile(path)
    assert file.read().to_pylist() == pa.table(columns).to_pylist()
    group = file.metadata.row_group(0)
    found = [group.column(n) for n in range(group.num_columns)]
    return {c.path_in_schema for c in found if c.has_dictionary_page}


async def test_values_that_repeat_get_one(tmp_path: Path) -> None:
    columns = {
        "id": pa.array(range(ROWS)),
        "name": pa.array([f"name {n}" for n in range(ROWS)]),
        "kind": pa.array([f"kind {n}" for n in REPEATED]),
        "day": pa.array(REPEATED, pa.date32()),
        "some": pa.array([None if n % 2 else "a" for n in range(ROWS)]),
        "none": pa.nulls(ROWS, pa.string()),
    }

    found = await dictionaries(tmp_path, columns)

    assert found == {"kind", "day", "some", "none"}


async def test_columns_within_columns_are_written_as_pyarrow_does(
    tmp_path: Path,
) -> None:
    ids = pa.array(range(ROWS))
    tags = pa.array([[f"tag {n}"] for n in REPEATED])

    assert await dictionaries(tmp_path, {"id": ids, "tags": tags}) == {
        "id",
        "tags.list.element",
    }
