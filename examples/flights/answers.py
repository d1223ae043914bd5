"""Spark SQL's own answers, computed from the files and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .database import Row
from .reading import arrow_batches
from .schema import TOP_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = {"Carrier": "carrier", "Origin": "origin", "Route": "origin || '-' || dest"}
WEATHER = ("temperature", "precipitation", "visibility")
CANCELLATION = ("carrier", "flight", "origin", "dest", "day", "hour")

_FLIGHT_EVENTS = {
    "Departure": ("departed", "dep_delay"),
    "Arrival": ("arrived", "arr_delay"),
    "Cancellation": ("NOT departed", "INT(NULL)"),
}


def rows(spark: SparkSession, query: str) -> Iterator[Row]:
    """Return the rows of a query in their order, in bounded memory."""
    for batch in arrow_batches(spark.sql(query)):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def metrics_query() -> str:
    """Return what the table `metrics` must hold, in the order of its key."""
    groups = [
        _group(f"{dimension}{event}", key, value, f"flights WHERE {condition}")
        for event, (condition, value) in _FLIGHT_EVENTS.items()
        for dimension, key in KEYS.items()
    ]
    groups += [
        _group(f"Origin{value.title()}", "origin", value, "weather")
        for value in WEATHER
    ]
    return f"{' UNION ALL '.join(groups)} ORDER BY {numbers(3)}"


def _group(metric: str, key: str, value: str, source: str) -> str:
    return f"""
        SELECT '{metric}', {key}, hour, COUNT(*), COUNT({value}),
            COALESCE(SUM({value}), 0), MIN({value}), MAX({value})
        FROM {source} GROUP BY {key}, hour"""


def top_delays_query(size: int) -> str:
    """Return what the table `top_delays` must hold, in the order of its key."""
    kinds = " UNION ALL ".join(
        f"""
        SELECT '{kind}' AS kind, day, {delay} AS delay, hour, carrier, flight, origin,
            dest
        FROM flights WHERE {condition} AND {delay} IS NOT NULL"""
        for kind, (condition, delay) in _FLIGHT_EVENTS.items()
        if kind != "Cancellation"
    )
    return f"""
        SELECT {", ".join(TOP_COLUMNS)} FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY kind, day
                ORDER BY delay DESC, hour DESC, carrier DESC, flight DESC, origin DESC,
                    dest DESC
            ) AS rank FROM ({kinds})
        ) WHERE rank <= {size} ORDER BY {numbers(3)}"""


def cancellations_query() -> str:
    """Return what the export must hold, sorted."""
    columns = numbers(len(CANCELLATION))
    fields = ", ".join(CANCELLATION)
    return f"SELECT {fields} FROM flights WHERE NOT departed ORDER BY {columns}"


def numbers(columns: int) -> str:
    """Return the first columns by number, to sort by them."""
    return ", ".join(str(number) for number in range(1, columns + 1))
