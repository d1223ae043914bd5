"""What a call may return, and what it is told where it returns something else."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql import types as spark_types
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from batchqueue_async import Retry
from batchqueue_async.spark import to_batches, to_tuples
from batchqueue_async.spark._calls.options import Call
from tests.spark.calls.served import RESULT, batch_of, in_batches, rows_of

TWO = StructType([StructField("n", LongType()), StructField("s", StringType())])


class Named(NamedTuple):
    s: str
    n: int


def returning(make: Callable[[list[Any]], object]) -> Call:
    async def call(batch: list[Any]) -> object:
        return make(batch)

    return call


@pytest.mark.parametrize(
    "row",
    [
        {"s": "x", "n": 1, "not declared": 2},
        (1, "x"),
        Row(n=1, s="x"),
        Row(s="x", n=1),
        Named("x", 1),
    ],
    ids=repr,
)
async def test_rows_are_dicts_tuples_and_rows(row: object) -> None:
    rows = await rows_of(
        returning(lambda batch: [row] * len(batch)), [batch_of([1, 2])], TWO
    )

    assert rows == [{"n": 1, "s": "x"}] * 2


async def test_rows_of_several_kinds_may_be_mixed() -> None:
    mixed = [(1, "x"), {"s": "y", "n": 2}, Row(s="z", n=None)]

    rows = await rows_of(returning(lambda _: mixed), [batch_of(range(3))], TWO)

    assert [row["s"] for row in rows] == ["x", "y", "z"]


async def test_flat_results_are_lists_of_rows() -> None:
    many = returning(lambda batch: [[(item["id"],)] * item["id"] for item in batch])

    rows = await rows_of(many, in_batches(5, 2), flat=True, linger=1.0)

    assert [row["y"] for row in rows] == [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    rows = await rows_of(many, in_batches(4, 2), flat=True, on_error="column")
    assert [(row["id"], row["y"]) for row in rows] == [
        (n, n) for n in (1, 2, 2, 3, 3, 3)
    ]
    assert await rows_of(many, [batch_of([0])], flat=True) == []


async def test_a_flat_item_that_failed_is_one_row() -> None:
    def answer(batch: list[Any]) -> object:
        if batch[0]["id"] == 1:
            raise LookupError
        return [[] for _ in batch]

    rows = await rows_of(
        returning(answer), [batch_of(range(3))], flat=True, max_batch=1, on_error="null"
    )

    assert rows == [{"y": None}]


async def test_record_batches_are_items_of_as_many_rows_as_a_call_may_have() -> None:
    sizes: list[list[int]] = []

    def doubled(batches: list[Any]) -> object:
        sizes.append([batch.num_rows for batch in batches])
        return [
            pa.record_batch({"y": [2 * n for n in batch.column(0).to_pylist()]})
            for batch in batches
        ]

    rows = await rows_of(
        returning(doubled), in_batches(250, 150), to_items=to_batches, linger=1.0
    )

    assert [row["y"] for row in rows] == [2 * n for n in range(250)]
    assert sizes == [[100], [50, 50], [50]]


async def test_a_record_batch_s_columns_go_by_name_and_are_cast() -> None:
    def made(batches: list[Any]) -> object:
        count = batches[0].num_rows
        columns = {"s": ["x"] * count, "n": pa.array([1] * count, pa.int8())}
        return [pa.record_batch(columns)]

    rows = await rows_of(
        returning(made), [batch_of(range(2))], TWO, to_items=to_batches
    )

    assert rows == [{"n": 1, "s": "x"}] * 2


async def test_record_batches_stand_beside_their_input() -> None:
    def answer(batches: list[Any]) -> object:
        if batches[0].column(0)[0].as_py() == 2:
            msg = "no"
            raise LookupError(msg)
        return [batch.rename_columns(["y"]) for batch in batches]

    rows = await rows_of(
        returning(answer),
        [batch_of(range(6))],
        to_items=to_batches,
        max_batch=2,
        on_error="column",
    )

    assert [tuple(row.values()) for row in rows] == [
        (0, 0, None),
        (1, 1, None),
        (2, None, "LookupError: no"),
        (3, None, "LookupError: no"),
        (4, 4, None),
        (5, 5, None),
    ]


@pytest.mark.parametrize(
    "returned, sentence",
    [
        (None, "call must return a list with one result per item, got None"),
        ({"y": 1}, "call must return a list with one result per item, got a dict"),
        ([{"y": 1}], "call must return one result per item, got 1 for 2 items"),
        ([{"y": 1}, 5], "result 1 must be a dict, a tuple or a Row, got an int"),
        ([{"y": 1}, {"z": 1}], "result 1 has no 'y'; the schema is y"),
        ([(1,), (1, 2)], "result 1 must have 1 values, got 2"),
        ([Row(z=1), Row(z=2)], "result 0 has no 'y'; the schema is y"),
        ([(1,), ("secret",)], "'y' takes BIGINT, and a str in result 1 doesn't fit"),
        ([(1,), (2**70,)], "'y' takes BIGINT, and an int in result 1 doesn't fit"),
        ([(1,), (1.5,)], "'y' takes BIGINT, and a float in result 1 doesn't fit"),
    ],
)
async def test_what_does_not_fit_is_told_in_a_sentence_without_data(
    returned: object, sentence: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as told:
        await rows_of(returning(lambda _: returned), [batch_of([1, 2])])

    assert sentence in str(told.value)
    assert "secret" not in str(told.value)


async def test_wrong_results_fail_their_call_and_no_other() -> None:
    rows = await rows_of(
        returning(lambda batch: [(1,)] * (len(batch) - batch[0]["id"] // 2)),
        in_batches(4, 4),
        max_batch=2,
        on_error="column",
        retry=Retry(attempts=2, wait_initial=0),
    )

    assert [row["y"] for row in rows] == [1, 1, None, None]
    assert rows[3]["error"].startswith("ValueError: call must return one result per")


@pytest.mark.parametrize(
    "options, returned, sentence",
    [
        ({"flat": True}, [(1,)], "with flat=True result 0 must be a list, got a tuple"),
        (
            {"flat": True},
            [[5]],
            "result 0 must be a dict, a tuple or a Row, got an int",
        ),
        ({"to_items": to_batches}, [5], "the result for a record batch must be one"),
        (
            {"to_items": to_batches},
            [pa.record_batch({"z": [1]})],
            "a record batch has no 'y'",
        ),
        (
            {"to_items": to_batches},
            [pa.record_batch({"y": ["x"]})],
            "column 'y' takes BIGINT, got string",
        ),
        (
            {"to_items": to_batches, "on_error": "column"},
            [pa.record_batch({"y": [1, 2]})],
            "must keep its number of rows, got 2 for 1",
        ),
    ],
)
async def test_so_it_is_with_lists_and_record_batches(
    options: dict[str, Any], returned: object, sentence: str
) -> None:
    call = returning(lambda _: returned)
    try:
        [row] = await rows_of(call, [batch_of([1])], **{"on_error": "raise", **options})
        told = row["error"]
    except (TypeError, ValueError) as error:
        told = str(error)

    assert sentence in told


async def test_null_is_refused_where_none_may_be() -> None:
    schema = StructType([StructField("y", LongType(), nullable=False)])

    with pytest.raises(ValueError, match="'y' must not be null, got None in result 1"):
        await rows_of(returning(lambda _: [(1,), (None,)]), [batch_of([1, 2])], schema)
    rows = await rows_of(
        returning(lambda _: [(None,)]), [batch_of([1])], schema, on_error="null"
    )
    assert rows == [{"y": None}]


async def test_a_call_that_is_not_async_says_so() -> None:
    with pytest.raises(TypeError, match="must be an async function, got a list from"):
        # Written in C, so that it cannot be seen before.
        await rows_of(cast("Any", list), [batch_of([1])])


async def test_items_are_what_to_items_makes() -> None:
    seen: list[Any] = []

    def noted(batch: list[Any]) -> object:
        seen.extend(batch)
        return [(1,)] * len(batch)

    await rows_of(returning(noted), [batch_of([1, 2])], to_items=to_tuples)

    assert seen == [(1,), (2,)]


async def test_every_type_of_spark_s_that_python_has_values_for() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    values: dict[spark_types.DataType, Any] = {
        spark_types.BooleanType(): True,
        spark_types.ByteType(): 1,
        spark_types.ShortType(): 1,
        spark_types.IntegerType(): 1,
        spark_types.FloatType(): 1.5,
        DoubleType(): 1.5,
        spark_types.DecimalType(10, 2): Decimal("1.50"),
        spark_types.BinaryType(): b"x",
        spark_types.DateType(): moment.date(),
        spark_types.TimestampType(): moment,
        spark_types.TimestampNTZType(): moment.replace(tzinfo=None),
        spark_types.DayTimeIntervalType(): datetime.timedelta(seconds=1),
        spark_types.NullType(): None,
        spark_types.ArrayType(LongType()): [1, None],
        spark_types.MapType(StringType(), LongType()): [("x", 1)],
        TWO: {"n": 1, "s": "x"},
    }
    schema = StructType([StructField(f"c{n}", kind) for n, kind in enumerate(values)])

    [row] = await rows_of(
        returning(lambda _: [tuple(values.values())]), [batch_of([1])], schema
    )

    assert [*row.values()] == [*values.values()]
    assert RESULT["y"].dataType == LongType()
