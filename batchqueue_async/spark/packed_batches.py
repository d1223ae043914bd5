"""A frame's record batches as rows, for sessions that send nothing but rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .map_in_arrow import map_in_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def packed_batches(df: DataFrame) -> DataFrame:
    """Return a frame of the record batches, each in a row as Arrow's stream format."""
    return map_in_arrow(df, _packer(), "packed BINARY")


def _packer() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Nested, so that it travels by value: executors need not have this package.
    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from struct import pack  # noqa: PLC0415  # on the executor

        import pyarrow as pa  # noqa: PLC0415

        for batch in batches:
            if batch.num_rows:
                stream = pa.BufferOutputStream()
                with pa.ipc.new_stream(stream, batch.schema) as writer:
                    writer.write_batch(batch)
                value = stream.getvalue()
                # A column of one value, around the bytes as they are.
                ends = pa.py_buffer(pack("=ii", 0, value.size))
                column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])
                yield pa.RecordBatch.from_arrays([column], ["packed"])

    return packed
