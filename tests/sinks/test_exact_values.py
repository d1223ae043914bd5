"""A value that its column would lose something of is refused, at whatever depth."""

import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.spark._calls.results import Column, RowColumns

NOON = datetime.datetime(2026, 1, 2, 12)
MIDNIGHT = datetime.datetime(2026, 1, 2)
LONG, DAY, TEXT = pa.int64(), pa.date32(), pa.string()
MOMENT, SPAN = pa.timestamp("us", "UTC"), pa.duration("us")
POINT = pa.struct([("x", LONG), ("y", LONG)])


class Point(NamedTuple):
    y: int
    x: int


class Other(NamedTuple):
    a: int
    b: int


def made(kind: pa.DataType, *values: object) -> list[Any]:
    columns = RowColumns([Column("c", kind, "ITS TYPE", is_nullable=True)])
    found: list[Any] = columns.of_rows([(value,) for value in values])[0].to_pylist()
    return found


@pytest.mark.parametrize(
    "kind, value",
    [
        (LONG, Decimal("1.5")),
        (LONG, np.float32(1.5)),
        (pa.float32(), 1e300),
        (pa.list_(pa.float32()), [1.0, -1e300]),
        (DAY, NOON),
        (DAY, pd.NaT),
        (pa.list_(DAY), [pd.NaT]),
        (MOMENT, 1_767_323_045.25),
        (MOMENT, 1_767_323_045.0),
        (MOMENT, pd.Timestamp("2026-01-02 12:00:00.123456789")),
        (SPAN, 1.5),
        (pa.timestamp("ms"), NOON.replace(microsecond=1)),
        (pa.list_(pa.timestamp("s")), [NOON, NOON.replace(microsecond=1_000)]),
        (pa.duration("ms"), datetime.timedelta(microseconds=1)),
        (pa.time32("s"), datetime.time(12, 0, 0, 1)),
        (pa.time32("ms"), datetime.time(12, tzinfo=datetime.UTC)),
        (pa.time64("us"), datetime.time(12, tzinfo=datetime.UTC)),
        (pa.date64(), NOON),
        (pa.list_(LONG), [1, 1.5]),
        (pa.list_(pa.list_(DAY)), [[MIDNIGHT], None, [NOON]]),
        (pa.list_(TEXT), "letters"),
        (pa.list_(LONG), b"bytes"),
        (pa.list_(LONG), 5),
        (pa.map_(LONG, TEXT), {1.5: "a"}),
        (pa.map_(TEXT, LONG), {"a": Decimal("1.5")}),
        (pa.map_(TEXT, LONG), [("a", 1.5)]),
        (POINT, {"x": 1, "y": 1.5}),
        (POINT, (1, 1.5)),
        (POINT, Point(y=1.5, x=2)),  # type: ignore[arg-type]
        (pa.list_(POINT), [{"x": 1.5, "y": 1}]),
    ],
    ids=repr,
)
def test_what_would_be_lost_is_refused(kind: pa.DataType, value: object) -> None:
    with pytest.raises(TypeError, match=r"'c' takes ITS TYPE, and an? .* in result 1"):
        made(kind, None, value)


@pytest.mark.parametrize(
    "kind, value, expected",
    [
        (LONG, 1.0, 1),
        (LONG, Decimal("2.0"), 2),
        (LONG, np.int32(3), 3),
        (
            pa.timestamp("ms"),
            NOON.replace(microsecond=2_000),
            NOON.replace(microsecond=2_000),
        ),
        (
            pa.duration("s"),
            datetime.timedelta(seconds=2),
            datetime.timedelta(seconds=2),
        ),
        (pa.time64("us"), NOON.time(), NOON.time()),
        (DAY, MIDNIGHT, MIDNIGHT.date()),
        (MOMENT, pd.Timestamp(NOON), pd.Timestamp(NOON, tz="UTC")),
        (pa.list_(LONG), (1.0, None), [1, None]),
        (pa.list_(POINT), [(1, 2), None], [{"x": 1, "y": 2}, None]),
        (pa.map_(TEXT, LONG), {"a": 1.0}, [("a", 1)]),
        (pa.map_(TEXT, TEXT), {"a": None}, [("a", None)]),
        (POINT, {"x": 1.0}, {"x": 1, "y": None}),
    ],
    ids=repr,
)
def test_what_fits_is_kept(kind: pa.DataType, value: object, expected: object) -> None:
    assert made(kind, value, None) == [expected, None]


def test_arrays_of_numpy_are_arrays() -> None:
    numbers = pa.list_(LONG)

    assert made(numbers, np.array([1, 2]), np.array([3.0])) == [[1, 2], [3]]
    with pytest.raises(TypeError, match="a ndarray in result 1 doesn't fit"):
        made(numbers, np.array([1, 2]), np.array([3.5]))


@pytest.mark.parametrize("value", [Row(y=1, x=2), Point(y=1, x=2), {"y": 1, "x": 2}])
def test_fields_inside_of_a_column_go_by_their_names(value: object) -> None:
    assert made(POINT, value) == [{"x": 2, "y": 1}]
    assert made(pa.list_(POINT), [value, None]) == [[{"x": 2, "y": 1}, None]]
    assert made(pa.map_(TEXT, POINT), {"a": value}) == [[("a", {"x": 2, "y": 1})]]


@pytest.mark.parametrize(
    "value", [{"x": 1, "y": 2, "z": 3}, {"X": 1}, Row(x=1, y=2, z=3)], ids=repr
)
def test_fields_that_a_column_has_not_are_refused(value: object) -> None:
    """A null would be in the place of one that is misspelt."""
    for kind, inside in ((POINT, value), (pa.list_(POINT), [value])):
        with pytest.raises(TypeError, match="column 'c' takes ITS TYPE, and a"):
            made(kind, inside)
        sink = ParquetEpochSink[Any]("unused", schema=pa.schema([("c", kind)]))
        with pytest.raises(ValueError, match="column c must be of"):
            list(sink._batches([(inside,)]))


def test_fields_that_a_value_has_not_are_null() -> None:
    assert made(POINT, {"y": 1}) == [{"x": None, "y": 1}]


def test_other_names_say_nothing() -> None:
    assert made(POINT, Other(1, 2)) == [{"x": 1, "y": 2}]


def cast(kind: pa.DataType, column: pa.Array) -> list[Any]:
    columns = RowColumns([Column("c", kind, "ITS TYPE", is_nullable=True)])
    found: list[Any] = columns.of_batch(pa.record_batch({"c": column}))[0].to_pylist()
    return found


@pytest.mark.parametrize(
    "kind, values",
    [
        (DAY, [MIDNIGHT, NOON]),
        (pa.list_(DAY), [None, [MIDNIGHT, NOON]]),
        (pa.struct([("d", DAY)]), [{"d": NOON}, None]),
        (pa.struct([("x", LONG)]), [{"x": 1, "y": 2}]),
        (pa.map_(TEXT, DAY), [[("a", NOON)]]),
        (pa.bool_(), [1, 5]),
        (pa.decimal128(10, 2), [1.239]),
        (pa.float32(), [1e300, float("inf")]),
    ],
    ids=repr,
)
def test_what_a_record_batch_would_lose_is_refused(
    kind: pa.DataType, values: list[Any]
) -> None:
    is_map = pa.types.is_map(kind)
    column = pa.array(values, pa.map_(TEXT, pa.timestamp("us")) if is_map else None)

    with pytest.raises(TypeError, match=r"'c' takes ITS TYPE, got .* would lose data"):
        cast(kind, column)
    sink = ParquetEpochSink[Any]("unused", schema=pa.schema([("c", kind)]))
    with pytest.raises(ValueError, match=r"column c must be of .*ArrowInvalid"):
        list(sink._batches([pa.record_batch({"c": column})]))


@pytest.mark.parametrize(
    "kind, values, expected",
    [
        (DAY, [None, MIDNIGHT], [None, MIDNIGHT.date()]),
        (pa.list_(DAY), [[MIDNIGHT], None], [[MIDNIGHT.date()], None]),
        (pa.bool_(), [1, 0, None], [True, False, None]),
        (pa.decimal128(10, 2), [1.25], [Decimal("1.25")]),
        (pa.float32(), [0.1, float("inf")], [np.float32(0.1), float("inf")]),
        (pa.float64(), [Decimal("0.1")], [0.1]),
    ],
    ids=repr,
)
def test_what_fits_of_a_record_batch_is_kept(
    kind: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    assert cast(kind, pa.array(values)) == expected
    # Of a part of a record batch only that part counts.
    assert cast(kind, pa.array([*values, *values])[1:]) == [*expected, *expected][1:]


def test_of_a_part_of_maps_only_that_part_counts() -> None:
    maps = pa.array(
        [[("a", NOON)], [("b", MIDNIGHT)], None], pa.map_(TEXT, pa.timestamp("us"))
    )
    assert cast(pa.map_(TEXT, DAY), maps[1:]) == [[("b", MIDNIGHT.date())], None]
