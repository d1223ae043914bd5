"""The main demo as a stream: killed again and again, it ends with the same tables."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from examples.flights.data import InputFiles
from examples.flights.options import Options, parse_options
from examples.flights.streaming import Job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SAMPLE = 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stream") / "out"


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "examples.flights", "--out", str(folder)]
    return subprocess.Popen(
        [*command, "--stream", "--sample", str(SAMPLE), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_after(process: subprocess.Popen[str], micro_batches: int) -> list[int]:
    """Kill the process when it has said so many; returns which ones."""
    seen = []
    with process:
        try:
            for number in said(process):
                seen.append(number)
                if len(seen) == micro_batches:
                    break
        finally:
            process.kill()
    assert len(seen) == micro_batches, "it ended by itself"
    return seen


def said(process: subprocess.Popen[str]) -> Iterator[int]:
    assert process.stdout is not None
    for line in process.stdout:
        found = re.match(r"Micro-batch (\d+): .* committed\.", line)
        if found:
            yield int(found[1])


@pytest.mark.slow
def test_two_kills_and_another_master_change_nothing(folder: Path) -> None:
    first = kill_after(started(folder, "--master", "local[2]"), 3)
    assert first == [0, 1, 2]
    with closing(sqlite3.connect(folder / "flights.db")) as database:
        (epochs,) = database.execute("SELECT COUNT(*) FROM epochs").fetchone()
    # It may have been further than what was said; never further in Spark's view.
    assert epochs in {3, 4, 5}

    second = kill_after(started(folder, "--master", "local[3]"), 2)
    assert first[-1] < second[0] <= 4

    with started(folder, "--master", "local[1]") as last:
        try:
            out, _ = last.communicate(timeout=200)
        finally:
            last.kill()
    assert last.returncode == 0, out
    assert "An unfinished stream goes on from its checkpoint." in out
    assert "Micro-batch 11:" in out
    assert re.search(r"Equal: all [\d,]+ rows are the same as Spark SQL's\.", out)
    assert not (folder / "stream").exists()
    assert (folder / "report.html").exists()


@pytest.mark.slow  # It looks at what the test above has left.
def test_each_event_was_counted_once(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "flights.db")) as database:
        counts = dict(
            database.execute("SELECT metric, SUM(count) FROM metrics GROUP BY metric")
        )
        (epochs,) = database.execute("SELECT COUNT(*) FROM epochs").fetchone()
        (state,) = database.execute("SELECT state FROM runs").fetchone()

    assert counts["CarrierDeparture"] + counts["CarrierCancellation"] == SAMPLE
    assert counts["OriginTemperature"] == 26_115
    assert (epochs, state) == (12, "complete")
    lines = (folder / "cancellations.jsonl").read_text().splitlines()
    assert len(set(lines)) == len(lines) == counts["CarrierCancellation"]
    assert json.loads(lines[0])["carrier"]


def options(folder: Path, *arguments: str) -> Options:
    return parse_options(["--out", str(folder), *arguments])


def test_a_job_is_begun_as_a_whole_and_belongs_to_its_options(tmp_path: Path) -> None:
    files = InputFiles(
        *(tmp_path / f"{name}.csv" for name in ("flights", "weather", ""))
    )
    files.flights.write_text("year,month,x\n2013,11,a\n2013,2,b\n2013,2,c\n")
    files.weather.write_text("time_hour,y\n2013-02-01T00:00:00Z,1\n")
    job = Job(options(tmp_path, "--sample", "5"))
    order: list[bool] = []

    def empty_tables() -> None:
        # Killed here, the next process begins afresh.
        order.append(job.is_unfinished())

    job.begin(files, empty_tables)
    assert order == [False]
    assert job.is_unfinished()
    # The master, and how fast, may change; what is read may not.
    assert Job(options(tmp_path, "--sample", "5", "--master", "local")).is_unfinished()
    assert not Job(options(tmp_path, "--sample", "6")).is_unfinished()

    months = tmp_path / "stream" / "flights"
    assert (months / "2013-02.csv").read_text() == "year,month,x\n2013,2,b\n2013,2,c\n"
    ages = {path.name: path.stat().st_mtime for path in months.iterdir()}
    assert ages["2013-02.csv"] < ages["2013-11.csv"]
    assert (tmp_path / "stream" / "weather" / "2013-02.csv").exists()

    job.end()
    job.end()
    assert not job.is_unfinished()
    assert not (tmp_path / "stream").exists()
