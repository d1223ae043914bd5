"""Structs that are null, with fields that may not be, as after an outer join."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
from tests.sinks.places import EPOCH, attempt

# Files are the same for every loop.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

NUMBER = pa.field("number", pa.int64(), nullable=False)
PLACE = pa.struct([NUMBER])


def nullable(numbers: list[int | None]) -> pa.Array:
    """Return structs as Spark delivers them: a null one's fields are null."""
    values, gone = pa.array(numbers), pa.array([each is None for each in numbers])
    return pa.StructArray.from_arrays([values], fields=[NUMBER], mask=gone)


def inside_of_others() -> list[pa.Array]:
    places = nullable([1, None])
    ends, keys = pa.array([0, 2]), pa.array(["a", "b"])
    return [
        pa.ListArray.from_arrays(ends, places),
        pa.LargeListArray.from_arrays(pa.array([0, 2], pa.int64()), places),
        pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), keys, places),
        pa.StructArray.from_arrays([places.slice(1)], fields=[pa.field("in", PLACE)]),
    ]


@pytest.mark.parametrize("column", [nullable([1, None]), *inside_of_others()])
async def test_they_are_written_as_they_are(tmp_path: Path, column: pa.Array) -> None:
    rows = pa.RecordBatch.from_arrays(
        [column], schema=pa.schema([("place", column.type)], metadata={"kept": "it is"})
    )
    sink, mine = ParquetStagedSink(tmp_path), attempt()

    await sink.stage(mine, [rows])
    await sink.publish(EPOCH, [await sink.seal(mine)])

    await sink.close()
    (path,) = sink.folder(EPOCH).glob("*.parquet")
    table = pq.read_table(path)
    assert table["place"].to_pylist() == column.to_pylist()
    assert table.schema.metadata[b"kept"] == b"it is"


async def test_so_are_those_of_the_other_sink(tmp_path: Path) -> None:
    sink = ParquetEpochSink[Any](tmp_path)

    await sink.begin(EPOCH)
    await sink.write(EPOCH, [pa.record_batch({"place": nullable([1, None])})])
    await sink.commit(EPOCH)

    found = pq.read_table(tmp_path)["place"].to_pylist()
    assert found == [{"number": 1}, None]
