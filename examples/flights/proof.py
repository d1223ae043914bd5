"""The proof: what a run left equals Spark SQL's own answer, row by row.

Spark computes every group from the files again, with none of the demo's code between
the rows and the aggregates. Both sides come sorted in the same order, so they are
compared in step, and neither is ever held in memory.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .database import Connect, Row, connected
from .problems import Problem, first_line
from .reading import arrow_batches
from .schema import METRIC_COLUMNS, TOP_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS = {"Carrier": "carrier", "Origin": "origin", "Route": "origin || '-' || dest"}
_FLIGHT_EVENTS = {
    "Departure": ("departed", "dep_delay"),
    "Arrival": ("arrived", "arr_delay"),
    "Cancellation": ("NOT departed", "INT(NULL)"),
}
_WEATHER = ("temperature", "precipitation", "visibility")
_CANCELLATION = ("carrier", "flight", "origin", "dest", "day", "hour")
_EXAMPLES = 3


@dataclass(slots=True)
class Check:
    """What the comparison of one metric, or of one list, came to.

    Attributes:
        name: What was compared.
        rows: How many rows Spark has.
        count: The events in them, by Spark.
        total: The sum of their values, by Spark.
        differing: Rows that differ, or that only one side has.
        examples: The first of them, Spark's and ours.
    """

    name: str
    rows: int = 0
    count: int = 0
    total: int | None = None
    differing: int = 0
    examples: list[tuple[Row | None, Row | None]] = field(default_factory=list)

    def compare(self, spark: Row | None, ours: Row | None) -> None:
        """Take up what both sides have in one place."""
        self.rows += spark is not None
        if spark != ours:
            self.differing += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append((spark, ours))


async def prove(
    spark: SparkSession, connect: Connect, export: Path, top_size: int
) -> list[Check]:
    """Compare everything that a run left with what Spark says it should be."""
    spark.catalog.cacheTable("flights")
    try:
        async with connected(connect) as database:
            return [
                *await _check_metrics(spark, database.rows(_ours("metrics", 3))),
                await _check_list(
                    "top delays",
                    _rows(spark, _top_query(top_size)),
                    database.rows(_ours("top_delays", 3)),
                ),
                await _check_list(
                    export.name, _rows(spark, _export_query()), _exported(export)
                ),
            ]
    finally:
        spark.catalog.uncacheTable("flights")


async def _check_metrics(
    spark: SparkSession, ours: AsyncIterator[Row]
) -> list[Check]:
    checks: dict[str, Check] = {}
    async for left, right in _in_step(_rows(spark, _metrics_query()), ours, key=3):
        metric, _, _, count, _, total, *_ = left or right or ()
        check = checks.get(metric) or checks.setdefault(metric, Check(metric, total=0))
        check.compare(left, right)
        if left is not None:
            check.count += count
            check.total = (check.total or 0) + total
    return list(checks.values())


async def _check_list(
    name: str, spark: Iterator[Row], ours: AsyncIterator[Row]
) -> Check:
    check = Check(name)
    async for left, right in _in_step(spark, ours, key=None):
        check.compare(left, right)
    check.count = check.rows
    return check


async def _in_step(
    expected: Iterator[Row], actual: AsyncIterator[Row], key: int | None
) -> AsyncIterator[tuple[Row | None, Row | None]]:
    """Pair sorted rows whose first `key` values are the same; None has no partner."""
    left, right = next(expected, None), await anext(actual, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[:key] < right[:key]):
            yield left, None
            left = next(expected, None)
        elif left is None or right[:key] < left[:key]:
            yield None, right
            right = await anext(actual, None)
        else:
            yield left, right
            left, right = next(expected, None), await anext(actual, None)


def _rows(spark: SparkSession, query: str) -> Iterator[Row]:
    for batch in arrow_batches(spark.sql(query)):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _ours(table: str, key: int) -> str:
    columns = METRIC_COLUMNS if table == "metrics" else TOP_COLUMNS
    return f"SELECT {', '.join(columns)} FROM {table} ORDER BY {_numbers(key)}"


async def _exported(path: Path) -> AsyncIterator[Row]:
    try:
        with path.open(encoding="utf-8") as lines:
            rows = [tuple(map(json.loads(line).get, _CANCELLATION)) for line in lines]
    except (OSError, ValueError) as error:
        msg = f"cannot read the export: {first_line(error)}"
        raise Problem(msg) from error
    for row in sorted(rows):
        yield row


def _metrics_query() -> str:
    groups = [
        _group(f"{dimension}{event}", key, value, f"flights WHERE {condition}")
        for event, (condition, value) in _FLIGHT_EVENTS.items()
        for dimension, key in _KEYS.items()
    ]
    groups += [
        _group(f"Origin{value.title()}", "origin", value, "weather")
        for value in _WEATHER
    ]
    return f"{' UNION ALL '.join(groups)} ORDER BY {_numbers(3)}"


def _group(metric: str, key: str, value: str, source: str) -> str:
    return f"""
        SELECT '{metric}', {key}, hour, COUNT(*), COUNT({value}),
            COALESCE(SUM({value}), 0), MIN({value}), MAX({value})
        FROM {source} GROUP BY {key}, hour"""


def _top_query(size: int) -> str:
    kinds = " UNION ALL ".join(
        f"""
        SELECT '{kind}' AS kind, day, {delay} AS delay, hour, carrier, flight, origin,
            dest
        FROM flights WHERE {condition} AND {delay} IS NOT NULL"""
        for kind, (condition, delay) in _FLIGHT_EVENTS.items()
        if kind != "Cancellation"
    )
    return f"""
        SELECT {', '.join(TOP_COLUMNS)} FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY kind, day
                ORDER BY delay DESC, hour DESC, carrier DESC, flight DESC, origin DESC,
                    dest DESC
            ) AS rank FROM ({kinds})
        ) WHERE rank <= {size} ORDER BY {_numbers(3)}"""


def _export_query() -> str:
    columns = _numbers(len(_CANCELLATION))
    fields = ", ".join(_CANCELLATION)
    return f"SELECT {fields} FROM flights WHERE NOT departed ORDER BY {columns}"


def _numbers(columns: int) -> str:
    return ", ".join(str(number) for number in range(1, columns + 1))
