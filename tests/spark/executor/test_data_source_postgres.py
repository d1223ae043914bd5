"""`format("batchqueue")` into PostgreSQL: values arrive as they are, once."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.ask_postgres import ask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.spark]

SINK = "batchqueue_async.sinks.postgres_staged:PostgresStagedSink.from_options"
VALUES = """SELECT id,
    CASE id WHEN 0 THEN NULL WHEN 1 THEN '' ELSE concat('a "b", \\n', id) END AS s,
    timestamp_micros(id) AS t, DATE '2026-11-21' AS d, id / 4.0D AS f, id = 1 AS b,
    CAST(id AS DECIMAL(10, 2)) AS n, IF(id = 0, NULL, encode('x\\\\y', 'utf-8')) AS raw
    FROM range(0, 3, 1, 2)"""


def write(frame: "DataFrame", dsn: str, **options: Any) -> None:  # noqa: ANN401
    made = frame.write.format("batchqueue").mode("append").option("sink", SINK)
    made.options(url=dsn, table='odd "name"', **options).save()


def test_values_arrive_as_they_are(spark: "SparkSession", postgres_dsn: str) -> None:
    ask(
        postgres_dsn,
        'CREATE TABLE "odd ""name""" (n NUMERIC, raw BYTEA, s TEXT, id BIGINT,'
        " t TIMESTAMPTZ, d DATE, f FLOAT8, b BOOLEAN, other SERIAL NOT NULL)",
    )
    frame = spark.sql(VALUES)

    for _ in range(2):
        write(frame, postgres_dsn, query="nightly")
    with pytest.raises(Exception, match="column 'a' must be of a type without parts"):
        write(spark.sql("SELECT array(1) AS a"), postgres_dsn)

    rows = ask(postgres_dsn, 'SELECT * FROM "odd ""name""" ORDER BY id')
    assert [row["s"] for row in rows] == [None, "", 'a "b", \n2']
    assert [row["t"].microsecond for row in rows] == [0, 1, 2]
    assert [row["b"] for row in rows] == [False, True, False]
    assert [(float(row["n"]), row["f"]) for row in rows] == [
        (0.0, 0.0),
        (1.0, 0.25),
        (2.0, 0.5),
    ]
    assert [row["raw"] for row in rows] == [None, b"x\\y", b"x\\y"]
    assert str(rows[0]["d"]) == "2026-11-21"
    assert ask(postgres_dsn, 'SELECT * FROM "odd ""name""_staged"') == []
    # Other tests' attempts may be there: the server is everybody's.
    left = "SELECT * FROM batchqueue_attempts WHERE target LIKE '%odd%'"
    assert ask(postgres_dsn, left) == []
