"""One run, from the files to the proof and the report."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from batchqueue_async import DeliveryError

from . import executor_run, stream_run
from .data import InputFiles, input_files
from .database import Connect, Run, connected
from .driver_use import DriverUse
from .events import Arrival, Cancellation, Departure, Event, Observation
from .findings import find
from .interruption import Interruption
from .loads import LoadRecorder
from .options import Options
from .pipeline import open_pipeline
from .problems import ItemsLost, Problem, first_line
from .producing import produce_all
from .proof import Check, holds_all_of, prove
from .reading import read_airlines, read_events
from .session import spark_session
from .sinks import sink_for, staged_tables, writers_for
from .stages import TOP_SIZE
from .streaming import Job
from .summary import (
    live_view,
    open_console,
    proof_table,
    queue_table,
    shown_at,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

DONE, DIFFERENT, INTERRUPTED = 0, 1, 130


def run(options: Options) -> int:
    """Do what the user asked for; returns the exit status."""
    console = open_console()
    _make_folder(options.out)
    connect = sink_for(options.sink, options.out)
    asyncio.run(_try(connect))
    with (
        input_files(options.data, options.sample) as files,
        spark_session(console, files, options.master) as spark,
    ):
        return _Demo(options, console, connect, files, spark).run()


@dataclass(frozen=True, slots=True)
class _Demo:
    """The steps of a run, and what all of them need."""

    options: Options
    console: Console
    connect: Connect
    files: InputFiles
    spark: SparkSession

    def run(self) -> int:
        if self.options.proof_only:
            return _status_of(self._prove())
        run, recorder = self._run()
        if recorder.latest.queues:
            self.console.print(queue_table(recorder), "")
        if run.state == "interrupted":
            return self._account_for(run)
        checks = self._prove()
        Job(self.options).end()
        self._report(run, recorder, checks)
        return _status_of(checks)

    def _run(self) -> tuple[Run, LoadRecorder]:
        if self.options.stream:
            return self._stream()
        return (
            self._run_on_executors() if self.options.on_executors else self._process()
        )

    def _stream(self) -> tuple[Run, LoadRecorder]:
        run = Run(started=_now(), finished=None, state="running")
        job = Job(self.options)
        if stream_run.prepare(job, self.files, self.connect, run):
            self.console.print("An unfinished stream goes on from its checkpoint.")
        is_done, recorder = self._pump_stream(job)
        state = "complete" if is_done else "interrupted"
        ended = replace(run, state=state, finished=_now())
        ended = asyncio.run(stream_run.counted(self.connect, ended))
        if is_done:
            asyncio.run(stream_run.export(self.connect, self._export))
        return ended, recorder

    def _pump_stream(self, job: Job) -> tuple[bool, LoadRecorder]:
        if not self.options.on_executors:
            return stream_run.process(
                job, self.spark, self.connect, self.console, self.options.view
            )
        # The queues are elsewhere: there is nothing to be seen of them here.
        with (
            Interruption() as interruption,
            LoadRecorder({}) as recorder,
            self._driver_use(),
        ):
            tables = staged_tables(self.options.sink, self.options.out)
            is_done = executor_run.stream(job, self.spark, tables, interruption)
        return is_done, recorder

    def _run_on_executors(self) -> tuple[Run, LoadRecorder]:
        run = Run(started=_now(), finished=None, state="running")
        Job(self.options).end()
        asyncio.run(_begin(self.connect, run))
        with self._failure_told(run), LoadRecorder({}) as recorder, self._driver_use():
            tables = staged_tables(self.options.sink, self.options.out)
            executor_run.process(self.spark, tables)
        ended = replace(run, state="complete", finished=_now())
        ended = asyncio.run(stream_run.counted(self.connect, ended))
        asyncio.run(stream_run.export(self.connect, self._export))
        return ended, recorder

    def _process(self) -> tuple[Run, LoadRecorder]:
        run = Run(started=_now(), finished=None, state="running")
        # The tables will be this run's: a stream cannot go on with them.
        Job(self.options).end()
        asyncio.run(_begin(self.connect, run))
        with self._failure_told(run):
            produced, state, recorder = self._pump()
        ended = _with_counts(replace(run, state=state, finished=_now()), produced)
        asyncio.run(_record(self.connect, ended))
        return ended, recorder

    def _pump(self) -> tuple[Counter[type[Event]], str, LoadRecorder]:
        with (
            Interruption() as interruption,
            open_pipeline(
                self.connect, self._export, writers=self._writers
            ) as pipeline,
            LoadRecorder(pipeline.queues) as recorder,
            live_view(self.console, recorder),
            shown_at(self.options.view, pipeline.queues),
        ):
            rate = self.options.events_per_second
            events = read_events(self.spark)
            produced = produce_all(pipeline, events, rate, interruption)
            try:
                pipeline.flush()
            except DeliveryError as error:
                raise ItemsLost(first_line(error)) from error
        state = "interrupted" if interruption.is_requested else "complete"
        return produced, state, recorder

    @contextmanager
    def _failure_told(self, run: Run) -> Iterator[None]:
        """Let the database say that the run has failed."""
        try:
            yield
        except BaseException:
            failed = replace(run, state="failed", finished=_now())
            # If the database itself failed, its first error is the one to tell.
            with suppress(Problem):
                asyncio.run(_record(self.connect, failed))
            raise

    @contextmanager
    def _driver_use(self) -> Iterator[None]:
        """Print how much of the block's data came to the driver."""
        before = DriverUse.of(self.spark)
        yield
        self.console.print(DriverUse.of(self.spark).told_since(before), "")

    def _account_for(self, run: Run) -> int:
        is_whole = asyncio.run(holds_all_of(run, self.connect))
        self.console.print(
            f"Interrupted. The database holds {'all' if is_whole else 'NOT all'} of the"
            f" {run.events:,} events that were read until then."
            f"{' The same command goes on.' if self.options.stream else ''}"
        )
        return INTERRUPTED if is_whole else DIFFERENT

    def _prove(self) -> list[Check]:
        with self.console.status("Spark SQL computes the same from the files ..."):
            proof = prove(self.spark, self.connect, self._export, TOP_SIZE)
            checks = asyncio.run(proof)
        self.console.print(proof_table(checks), "")
        for check in checks:
            for theirs, ours in check.examples:
                self.console.print(f"{check.name}: Spark has {theirs}, we have {ours}")
        rows = sum(check.rows for check in checks)
        differing = sum(check.differing for check in checks)
        self.console.print(
            f"NOT EQUAL: {differing:,} rows differ from Spark SQL's."
            if differing
            else f"Equal: all {rows:,} rows are the same as Spark SQL's."
        )
        return checks

    def _report(self, run: Run, recorder: LoadRecorder, checks: list[Check]) -> None:
        if not run.departures:
            self.console.print("No flight departed: there is nothing to draw.")
            return
        # Matplotlib takes a second to import, which no failed run should wait for.
        from .report import render_report  # noqa: PLC0415

        findings = asyncio.run(find(self.connect))
        airlines = read_airlines(self.files.airlines)
        path = self.options.out / "report.html"
        page = render_report(findings, run, recorder, checks, airlines)
        path.write_text(page, encoding="utf-8")
        self.console.print(f"The year in pictures: {path}")

    @property
    def _writers(self) -> int:
        return writers_for(self.options.sink, self.options.out)

    @property
    def _export(self) -> Path:
        return self.options.out / "cancellations.jsonl"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot write to {path}: {first_line(error)}"
        raise Problem(msg) from error


async def _try(connect: Connect) -> None:
    async with connected(connect):
        pass


async def _begin(connect: Connect, run: Run) -> None:
    async with connected(connect) as database:
        await database.reset()
        await database.record(run)


async def _record(connect: Connect, run: Run) -> None:
    async with connected(connect) as database:
        await database.record(run)


def _with_counts(run: Run, produced: Counter[type[Event]]) -> Run:
    return replace(
        run,
        departures=produced[Departure],
        arrivals=produced[Arrival],
        cancellations=produced[Cancellation],
        observations=produced[Observation],
    )


def _status_of(checks: list[Check]) -> int:
    return DIFFERENT if any(check.differing for check in checks) else DONE


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
