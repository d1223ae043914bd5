"""The tables, in SQL that SQLite and PostgreSQL share but for a few words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

TABLES = ("metrics", "top_delays", "cancellations", "epochs", "runs")

METRIC_COLUMNS = (
    "metric",
    "key",
    "hour",
    "count",
    "measured",
    "total",
    "smallest",
    "largest",
)

TOP_COLUMNS = (
    "kind",
    "day",
    "rank",
    "delay",
    "hour",
    "carrier",
    "flight",
    "origin",
    "dest",
)


CANCELLATION_COLUMNS = ("carrier", "flight", "origin", "dest", "day", "hour")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words that differ.

    Attributes:
        text: The type of text that sorts by its bytes, as Spark's does.
        least: The smaller of two numbers.
        greatest: The larger of two numbers.
        options: What follows the columns of a table.
    """

    text: str
    least: str
    greatest: str
    options: str = ""


def drop_tables() -> Iterator[str]:
    """Return the statements that remove the tables of an earlier run.

    With those where executors stage rows: the driver of an earlier run may be dead, and
    its JVM, or the database's server, not know it yet. What they publish later must not
    get into the tables of this run.
    """
    for table in TABLES:
        yield f"DROP TABLE IF EXISTS {table}"
        yield f"DROP TABLE IF EXISTS {table}_staged"


def create_tables(words: Dialect) -> tuple[str, ...]:
    """Return the statements that create the tables."""
    text = words.text
    return (
        f"""
        CREATE TABLE metrics (
            metric {text}, key {text}, hour BIGINT,
            count BIGINT NOT NULL, measured BIGINT NOT NULL, total BIGINT NOT NULL,
            smallest BIGINT, largest BIGINT,
            PRIMARY KEY (metric, key, hour)
        ) {words.options}""",
        f"""
        CREATE TABLE top_delays (
            kind {text}, day BIGINT, rank BIGINT, delay BIGINT NOT NULL,
            hour BIGINT NOT NULL, carrier {text} NOT NULL, flight BIGINT NOT NULL,
            origin {text} NOT NULL, dest {text} NOT NULL,
            PRIMARY KEY (kind, day, rank)
        ) {words.options}""",
        f"""
        CREATE TABLE cancellations (
            carrier {text} NOT NULL, flight BIGINT NOT NULL, origin {text} NOT NULL,
            dest {text} NOT NULL, day BIGINT NOT NULL, hour BIGINT NOT NULL
        )""",
        f"""
        CREATE TABLE epochs (
            query {text}, batch BIGINT, PRIMARY KEY (query, batch)
        ) {words.options}""",
        """
        CREATE TABLE runs (
            started TEXT NOT NULL, finished TEXT, state TEXT NOT NULL,
            departures BIGINT, arrivals BIGINT, cancellations BIGINT,
            observations BIGINT
        )""",
    )


def combine_metrics(words: Dialect) -> str:
    """Return the end of an INSERT that adds to the windows that exist."""

    def either(function: str, column: str) -> str:
        ours, new = f"metrics.{column}", f"excluded.{column}"
        return f"{function}(COALESCE({ours}, {new}), COALESCE({new}, {ours}))"

    return f"""
        ON CONFLICT (metric, key, hour) DO UPDATE SET
            count = metrics.count + excluded.count,
            measured = metrics.measured + excluded.measured,
            total = metrics.total + excluded.total,
            smallest = {either(words.least, "smallest")},
            largest = {either(words.greatest, "largest")}"""


def replace_top_delays() -> str:
    """Return the end of an INSERT that puts a new flight on an old rank."""
    values = ", ".join(f"{column} = excluded.{column}" for column in TOP_COLUMNS[3:])
    return f"ON CONFLICT (kind, day, rank) DO UPDATE SET {values}"
