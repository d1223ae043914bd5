"""The demo's pipeline on executors: as a stream that is killed, and on clusters."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.spark.chaos.year import Year
from tests.support.cluster import running_cluster
from tests.support.process_family import parent_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE = 200.0
"""Seconds for what takes ten on a machine that is not busy."""

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Year:
    return Year(tmp_path_factory.mktemp("year") / "data", months=3)


def started(
    year: Year,
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "examples.flights", "--out", str(folder)]
    return subprocess.Popen(
        [*command, "--data", str(year.folder), *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    with process:
        try:
            out, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return process.returncode, out


def assert_equal(
    year: Year,
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> str:
    is_told_to_go_on = True
    while is_told_to_go_on:
        status, out = ended(started(year, folder, *arguments, environment=environment))
        # The JVM of a killed driver lives a little longer, and may commit meanwhile.
        is_told_to_go_on = status == 2 and "the same command goes on" in out
    assert status == 0, out
    assert re.search(r"Equal: all [\d,]+ rows are the same as Spark SQL's\.", out), out
    return out


def wait_for_commits(folder: Path, commits: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len([*folder.glob("stream/checkpoint/*/commits/[0-9]*")]) < commits:
        assert time.monotonic() < deadline, "nothing was committed"
        time.sleep(0.1)


@pytest.mark.parametrize(
    "where,database",
    [("executors", "sqlite"), ("executors", "postgresql"), ("driver", "postgresql")],
)
def test_a_killed_stream_goes_on_with_another_master(
    request: pytest.FixtureRequest,
    year: Year,
    tmp_path: Path,
    where: str,
    database: str,
) -> None:
    folder = tmp_path / "out"
    command = ["--stream", *(["--on-executors"] if where == "executors" else [])]
    if database == "postgresql":
        command += ["--sink", request.getfixturevalue("postgres_dsn")]
    with started(year, folder, *command, "--master", "local[2]") as first:
        try:
            wait_for_commits(folder, 3 if where == "executors" else 1)
        finally:
            first.kill()

    out = assert_equal(year, folder, *command, "--master", "local[3]")

    assert "An unfinished stream goes on from its checkpoint." in out
    assert not (folder / "stream").exists()
    assert (folder / "flights.db").exists() == (database == "sqlite")


def test_on_a_cluster_of_two_executors(year: Year, tmp_path: Path) -> None:
    command = ["--on-executors", "--master", "local-cluster[2,1,1024]"]
    out = assert_equal(year, tmp_path, *command)

    assert "Spark 4" in out
    assert " at local-cluster[2,1,1024] reads the files." in out
    # The executors have Java processes of their own, so the driver's tells of itself.
    assert "what lives in its JVM's heap by " in out.replace("\n", "")


def test_on_a_standalone_cluster_of_two_workers(year: Year, tmp_path: Path) -> None:
    small = "--executor-memory 512m pyspark-shell"
    with running_cluster(workers=2, cores=1) as cluster:
        command = ["--on-executors", "--master", cluster.url]
        environment = {"PYSPARK_SUBMIT_ARGS": small}
        assert_equal(year, tmp_path, *command, environment=environment)


def test_a_killed_jvm_is_told_in_a_line(year: Year, tmp_path: Path) -> None:
    with started(year, tmp_path, "--on-executors", "--stream") as process:
        try:
            wait_for_commits(tmp_path, 1)
            os.kill(jvm_of(process), signal.SIGKILL)
            status, out = ended(process)
        finally:
            process.kill()

    assert status == 2
    # Spark's own threads may tell what they have lost, also after that line; the
    # program has no traceback.
    assert re.search(r"^flights: Spark's Java process has ended: ", out, re.MULTILINE)
    assert not re.search(r'File ".*examples.flights', out)


def jvm_of(process: subprocess.Popen[str]) -> int:
    (jvm,) = (
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if parent_of(int(folder.name)) == process.pid
        and b"java" in (folder / "cmdline").read_bytes()
    )
    return jvm


def test_a_master_that_does_not_start_is_told_in_a_line(
    year: Year, tmp_path: Path
) -> None:
    master = "local-cluster[2,1]"
    status, out = ended(started(year, tmp_path, "--on-executors", "--master", master))

    assert status == 2
    pattern = rf"flights: Spark does not start with --master {re.escape(master)}: .*"
    assert re.fullmatch(pattern, out.rstrip()), out
