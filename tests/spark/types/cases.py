"""Spark's types: a value of each, what Python gets, and what the stores keep."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

AT = datetime(2026, 1, 2, 3, 4, 5, 6)
MICROSECONDS = 1_767_323_045_000_006
"""The same since 1970, in UTC."""
REFUSED = object()
"""Instead of a value: the write fails."""


class Case(NamedTuple):
    """One of Spark's types.

    Attributes:
        name: As the table of the docs has it.
        sql: A value.
        plain: What `to_tuples` and `to_dicts` make of it.
        typed: What `to_objects` makes of it, by the annotation.
        sqlite: What SQLite has, in a column without a type.
        postgres: What PostgreSQL has, in a column of `postgres_type`.
        parquet: What Spark reads from Parquet, and its type there; None where Spark
            cannot read it.
    """

    name: str
    sql: str
    plain: Any
    typed: Mapping[Any, Any]
    sqlite: Any = REFUSED
    postgres: Any = REFUSED
    postgres_type: str = "JSONB"
    parquet: tuple[str, Any] | None = None


CASES = {
    "number": Case(
        "BIGINT and the like",
        "42L",
        42,
        {int: 42, float: 42.0, Decimal: Decimal(42)},
        42,
        42,
        "BIGINT",
        ("bigint", 42),
    ),
    "fraction": Case(
        "FLOAT, DOUBLE", "1.5D", 1.5, {float: 1.5}, 1.5, 1.5, "FLOAT8", ("double", 1.5)
    ),
    "flag": Case(
        name="BOOLEAN",
        sql="TRUE",
        plain=True,
        typed={bool: True},
        sqlite=1,
        postgres=True,
        postgres_type="BOOLEAN",
        parquet=("boolean", True),
    ),
    "name": Case(
        "STRING, CHAR, VARCHAR",
        "'x'",
        "x",
        {str: "x"},
        "x",
        "x",
        "TEXT",
        ("string", "x"),
    ),
    "price": Case(
        "DECIMAL",
        "CAST('12.50' AS DECIMAL(10, 2))",
        Decimal("12.50"),
        {Decimal: Decimal("12.50"), float: 12.5},
        "12.50",
        Decimal("12.50"),
        "NUMERIC",
        ("decimal(10,2)", Decimal("12.50")),
    ),
    "whole": Case(
        "DECIMAL(p, 0)",
        "CAST(12 AS DECIMAL(20, 0))",
        Decimal(12),
        {Decimal: Decimal(12), float: 12.0, int: 12},
        "12",
        Decimal(12),
        "NUMERIC",
        ("decimal(20,0)", Decimal(12)),
    ),
    "holiday": Case(
        "DATE",
        "DATE '2026-01-02'",
        date(2026, 1, 2),
        {date: date(2026, 1, 2)},
        "2026-01-02",
        date(2026, 1, 2),
        "DATE",
        ("date", date(2026, 1, 2)),
    ),
    "moment": Case(
        "TIMESTAMP",
        f"timestamp_micros({MICROSECONDS})",
        MICROSECONDS,
        {int: MICROSECONDS, datetime: AT.replace(tzinfo=UTC)},
        MICROSECONDS,
        AT.replace(tzinfo=UTC),
        "TIMESTAMPTZ",
        # As Spark's own rows: naive, in the time zone of this process.
        ("timestamp", AT.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)),
    ),
    "plain": Case(
        "TIMESTAMP_NTZ",
        "TIMESTAMP_NTZ '2026-01-02 03:04:05.000006'",
        MICROSECONDS,
        {int: MICROSECONDS, datetime: AT},
        MICROSECONDS,
        AT,
        "TIMESTAMP",
        ("timestamp_ntz", AT),
    ),
    "raw": Case(
        "BINARY",
        "X'00ff'",
        b"\0\xff",
        {bytes: b"\0\xff"},
        b"\0\xff",
        b"\0\xff",
        "BYTEA",
        ("binary", b"\0\xff"),
    ),
    "absent": Case(
        "NULL (VOID)",
        "NULL",
        None,
        {str: None, int: None},
        None,
        None,
        "TEXT",
        ("void", None),
    ),
    "map_of": Case(
        "MAP",
        "MAP('a', 1.5BD)",
        {"a": Decimal("1.5")},
        {dict: {"a": Decimal("1.5")}, dict[str, float]: {"a": 1.5}},
        parquet=("map<string,decimal(2,1)>", {"a": Decimal("1.5")}),
    ),
    "list_of": Case(
        "ARRAY",
        "ARRAY(1, NULL)",
        [1, None],
        {list[int]: [1, None], tuple: (1, None), set[float]: {1.0, None}},
        parquet=("array<int>", [1, None]),
    ),
    "struct_of": Case(
        "STRUCT",
        "NAMED_STRUCT('x', 1, 'price', 1.5BD)",
        {"x": 1, "price": Decimal("1.5")},
        {dict: {"x": 1, "price": Decimal("1.5")}},
        parquet=("struct<x:int,price:decimal(2,1)>", (1, Decimal("1.5"))),
    ),
    "span": Case(
        "INTERVAL DAY TO SECOND",
        "INTERVAL '1 02:03:04.5' DAY TO SECOND",
        timedelta(1, 7384, 500_000),
        {timedelta: timedelta(1, 7384, 500_000)},
        parquet=("interval day to second", timedelta(1, 7384, 500_000)),
    ),
    "variant": Case(
        "VARIANT",
        """parse_json('{"a": 1}')""",
        {"value": b"\x02\x01\x00\x00\x02\x0c\x01", "metadata": b"\x01\x01\x00\x01a"},
        {},
    ),
}
