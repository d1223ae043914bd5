"""The input's columns beside the results', and the error's text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class OutputColumn(NamedTuple):
    """Where a column's values come from.

    Attributes:
        name: The column's.
        of_input: Its place among the input's columns, if it is one of them.
        of_result: Its place among the results' columns, if it is one of them. A column
            that is neither is the error's.
    """

    name: str
    of_input: int | None
    of_result: int | None


def beside_input(
    columns: Sequence[OutputColumn],
    given: pa.RecordBatch,
    results: pa.RecordBatch,
    errors: Sequence[str | None],
) -> pa.RecordBatch:
    """Return a row for each of the three; where there is an error results are null."""
    texts = pa.array(errors, pa.string())
    is_good = texts.is_null()
    arrays = []
    for column in columns:
        if column.of_input is None:
            place = column.of_result
            arrays.append(texts if place is None else results.column(place))
            continue
        array = given.column(column.of_input)
        if column.of_result is not None:
            made = results.column(column.of_result).cast(array.type)
            array = pc.if_else(is_good, made, array) if texts.null_count else array
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, [each.name for each in columns])
