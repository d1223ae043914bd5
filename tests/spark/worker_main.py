"""A Python worker's `main`, as PySpark has it: its output has a buffer."""

from collections.abc import Callable, Iterator

import pyarrow as pa

RowsOf = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Output:
    """Counts how often its buffer was written."""

    flushed = 0

    def flush(self) -> None:
        self.flushed += 1


def rows_flushed_one_by_one(rows_of: RowsOf, batches: Iterator[pa.RecordBatch]) -> int:
    """Return how many record batches came, each after the one before was flushed."""
    output = Output()

    # It is known by its arguments.
    def main(infile: Iterator[pa.RecordBatch], outfile: Output) -> int:
        taken = -1
        for taken, _ in enumerate(rows_of(infile)):
            assert outfile.flushed == taken
        return taken + 1

    taken = main(batches, output)
    assert output.flushed == taken
    return taken
