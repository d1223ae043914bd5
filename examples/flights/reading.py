"""Spark reads the files; the driver gets typed events, a batch of columns at a time.

Rows never cross as Python rows: the executors turn each batch of columns into Arrow
bytes, the driver fetches one partition while it works on the one before, and only the
last step makes objects. That is several times faster than `toLocalIterator` on the
rows, and memory is bound by two partitions, whatever the size of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from batchqueue_async.spark import arrow_batches as spark_batches

from .data import InputFiles
from .events import Arrival, Cancellation, Departure, Event, Observation
from .problems import Problem, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Small splits of the input: first events come early, and two take little memory.
_SPLIT = "4m"

CSV: dict[str, Any] = {"header": True, "nullValue": "NA", "mode": "FAILFAST"}

FLIGHTS = """
    SELECT carrier, INT(flight) AS flight, origin, dest,
        UNIX_DATE(MAKE_DATE(INT(year), INT(month), INT(day))) AS day,
        UNIX_SECONDS(TIMESTAMP(time_hour)) DIV 3600 AS hour,
        dep_time IS NOT NULL AS departed, INT(dep_delay) AS dep_delay,
        arr_time IS NOT NULL AS arrived, INT(arr_delay) AS arr_delay
    FROM {source}
"""

WEATHER = """
    SELECT origin, UNIX_SECONDS(TIMESTAMP(time_hour)) DIV 3600 AS hour,
        INT(ROUND(DOUBLE(temp) * 100)) AS temperature,
        INT(ROUND(DOUBLE(precip) * 100)) AS precipitation,
        INT(ROUND(DOUBLE(visib) * 100)) AS visibility
    FROM {source}
"""


def open_tables(spark: SparkSession, files: InputFiles) -> None:
    """Make the files known to Spark SQL as `flights` and `weather`."""
    spark.conf.set("spark.sql.files.maxPartitionBytes", _SPLIT)
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    for name, path, query in (
        ("flights", files.flights, FLIGHTS),
        ("weather", files.weather, WEATHER),
    ):
        try:
            schema = text_columns(path)
            frame = spark.read.csv(str(path), schema, **CSV)
            frame.createOrReplaceTempView(f"{name}_csv")
            spark.sql(query.format(source=f"{name}_csv")).createOrReplaceTempView(name)
        except PySparkException as error:
            msg = f"{path.name} is not as expected: {first_line(error)}"
            raise Problem(msg) from error


def read_airlines(path: Path) -> dict[str, str]:
    """Return the airlines' names by their codes."""
    lines = path.read_text().splitlines()[1:]
    return dict(line.split(",", 1) for line in lines)


def read_events(spark: SparkSession) -> Iterator[list[Event]]:
    """Return everything that happened, in lists of a few thousand events."""
    for batch in arrow_batches(spark.table("flights")):
        yield list(flight_events(batch))
    for batch in arrow_batches(spark.table("weather")):
        yield list(observations(batch))


def arrow_batches(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Return the frame's rows in their order, column by column, in bounded memory."""
    try:
        yield from spark_batches(frame)
    except (Py4JJavaError, PySparkException) as error:
        msg = f"Spark cannot read the data: {root_cause(error)}"
        raise Problem(msg) from error


def text_columns(path: Path) -> str:
    """Return a schema named after the header line, all of it text.

    With a schema Spark needs no job to look at the file first.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        columns = lines.readline().strip().split(",")
    return ", ".join(f"`{column}` STRING" for column in columns)


def root_cause(error: Exception) -> str:
    causes = [
        line.removeprefix("Caused by: ")
        for line in str(error).splitlines()
        if line.startswith("Caused by: ")
    ]
    return causes[-1].split(": ", 1)[-1] if causes else first_line(error)


def flight_events(batch: pa.RecordBatch) -> Iterator[Event]:
    """Return what a batch of the columns of `flights` tells."""
    for (
        carrier,
        flight,
        origin,
        dest,
        day,
        hour,
        departed,
        departure_delay,
        arrived,
        arrival_delay,
    ) in zip(*_columns(batch), strict=True):
        where_and_when = (carrier, flight, origin, dest, day, hour)
        if departed:
            yield Departure(*where_and_when, departure_delay)
        else:
            yield Cancellation(*where_and_when)
        if arrived:
            yield Arrival(*where_and_when, arrival_delay)


def observations(batch: pa.RecordBatch) -> Iterator[Observation]:
    """Return what a batch of the columns of `weather` tells."""
    return map(Observation, *_columns(batch))


def events_of(batch: pa.RecordBatch) -> Iterator[Event]:
    """Return the events of rows that have either a flight or an observation."""
    flights, weather = batch.column("flight"), batch.column("weather")
    yield from flight_events(pa.RecordBatch.from_struct_array(flights.drop_null()))
    yield from observations(pa.RecordBatch.from_struct_array(weather.drop_null()))


def all_events(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Return the rows of both in one frame, for `events_of`."""
    return flights.sparkSession.sql(
        """SELECT STRUCT(*) AS flight, NULL AS weather FROM {flights}
        UNION ALL SELECT NULL, STRUCT(*) FROM {weather}""",
        flights=flights,
        weather=weather,
    )


def _columns(batch: pa.RecordBatch) -> list[list[object]]:
    return [column.to_pylist() for column in batch.columns]
