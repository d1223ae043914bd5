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

from .answers import (
    CANCELLATION,
    KEYS,
    WEATHER,
    cancellations_query,
    metrics_query,
    numbers,
    rows,
    top_delays_query,
)
from .database import Connect, Row, Run, connected
from .problems import Problem, first_line
from .schema import METRIC_COLUMNS, TOP_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_METRICS = f"SELECT {', '.join(METRIC_COLUMNS)} FROM metrics ORDER BY {numbers(3)}"
_TOP_DELAYS = f"SELECT {', '.join(TOP_COLUMNS)} FROM top_delays ORDER BY {numbers(3)}"
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
                *await _check_metrics(spark, database.rows(_METRICS)),
                await _check_list(
                    "top delays",
                    rows(spark, top_delays_query(top_size)),
                    database.rows(_TOP_DELAYS),
                    key=3,
                ),
                await _check_list(
                    export.name,
                    rows(spark, cancellations_query()),
                    _exported(export),
                    key=None,
                ),
            ]
    finally:
        spark.catalog.uncacheTable("flights")


async def holds_all_of(run: Run, connect: Connect) -> bool:
    """Tell whether every metric has exactly the events that a run has produced."""
    expected = {
        f"{dimension}{event}": produced
        for event, produced in (
            ("Departure", run.departures),
            ("Arrival", run.arrivals),
            ("Cancellation", run.cancellations),
        )
        for dimension in KEYS
    }
    expected |= {f"Origin{value.title()}": run.observations for value in WEATHER}
    query = "SELECT metric, SUM(count) FROM metrics GROUP BY metric"
    async with connected(connect) as database:
        actual = {metric: int(count) async for metric, count in database.rows(query)}
    return actual == {metric: count for metric, count in expected.items() if count}


async def _check_metrics(spark: SparkSession, ours: AsyncIterator[Row]) -> list[Check]:
    checks: dict[str, Check] = {}
    async for left, right in _in_step(rows(spark, metrics_query()), ours, key=3):
        metric, _, _, count, _, total, *_ = left or right or ()
        check = checks.get(metric) or checks.setdefault(metric, Check(metric, total=0))
        check.compare(left, right)
        if left is not None:
            check.count += count
            check.total = (check.total or 0) + total
    return list(checks.values())


async def _check_list(
    name: str, spark: Iterator[Row], ours: AsyncIterator[Row], key: int | None
) -> Check:
    check = Check(name)
    async for left, right in _in_step(spark, ours, key):
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


async def _exported(path: Path) -> AsyncIterator[Row]:
    try:
        with path.open(encoding="utf-8") as lines:
            exported = sorted(map(_cancellation, lines))
    except (OSError, ValueError, LookupError, TypeError) as error:
        msg = f"cannot read the export: {first_line(error)}"
        raise Problem(msg) from error
    for row in exported:
        yield row


def _cancellation(line: str) -> Row:
    fields = json.loads(line)
    return tuple(fields[name] for name in CANCELLATION)
