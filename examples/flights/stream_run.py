"""One process of a stream: from where the last one was to the end, or to Ctrl-C."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .data import InputFiles
from .database import Connect, Run, connected
from .interruption import Interruption
from .loads import LoadRecorder
from .schema import CANCELLATION_COLUMNS
from .stream_pipeline import open_stream_pipeline
from .streaming import Job
from .summary import live_view, shown_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console


def prepare(job: Job, files: InputFiles, connect: Connect, run: Run) -> bool:
    """Begin the job unless it was begun; returns whether it was."""
    if job.is_unfinished():
        return True
    job.begin(files, lambda: asyncio.run(_empty_tables(connect, run)))
    return False


def process(
    job: Job,
    spark: SparkSession,
    connect: Connect,
    console: Console,
    view: Path | None,
) -> tuple[bool, LoadRecorder]:
    """Process what is left; returns whether that was all, and what was to be seen."""
    with (
        Interruption() as interruption,
        open_stream_pipeline(connect) as pipeline,
        LoadRecorder(pipeline.queues) as recorder,
        live_view(console, recorder),
        shown_at(view, pipeline.queues),
    ):
        is_done = job.run(spark, pipeline, interruption, console.print)
    return is_done, recorder


async def counted(connect: Connect, run: Run) -> Run:
    """Return the run with what the tables hold: no process has seen all of it."""
    query = "SELECT metric, SUM(count) FROM metrics GROUP BY metric"
    async with connected(connect) as database:
        counts = {metric: int(count) async for metric, count in database.rows(query)}
        ended = replace(
            run,
            departures=counts.get("CarrierDeparture", 0),
            arrivals=counts.get("CarrierArrival", 0),
            cancellations=counts.get("CarrierCancellation", 0),
            observations=counts.get("OriginTemperature", 0),
        )
        await database.record(ended)
    return ended


async def export(connect: Connect, path: Path) -> None:
    """Write the cancellations, which are in the database, to a file."""
    query = f"SELECT {', '.join(CANCELLATION_COLUMNS)} FROM cancellations"
    async with connected(connect) as database:
        with path.open("w", encoding="utf-8") as file:
            async for row in database.rows(query):
                line = dict(zip(CANCELLATION_COLUMNS, row, strict=True))
                file.write(f"{json.dumps(line)}\n")


async def _empty_tables(connect: Connect, run: Run) -> None:
    async with connected(connect) as database:
        await database.reset()
        await database.record(run)
