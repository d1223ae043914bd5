"""The demo's pipeline on executors: as a stream that is killed, and on a cluster."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "examples.flights", "--out", str(folder)]
    return subprocess.Popen(
        [*command, "--on-executors", "--sample", "2000", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def assert_equal(process: subprocess.Popen[str]) -> str:
    with process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert re.search(r"Equal: all [\d,]+ rows are the same as Spark SQL's\.", out), out
    return out


def wait_for_commits(folder: Path, commits: int) -> None:
    deadline = time.monotonic() + 120
    while len([*folder.glob("stream/checkpoint/*/commits/[0-9]*")]) < commits:
        assert time.monotonic() < deadline, "nothing was committed"
        time.sleep(0.1)


def test_a_killed_stream_goes_on_with_another_master(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with started(folder, "--stream", "--master", "local[2]") as first:
        wait_for_commits(folder, 4)
        first.kill()

    out = assert_equal(started(folder, "--stream", "--master", "local[3]"))

    assert "An unfinished stream goes on from its checkpoint." in out
    assert not (folder / "stream").exists()


def test_on_a_cluster_of_two_executors(tmp_path: Path) -> None:
    assert_equal(started(tmp_path, "--master", "local-cluster[2,1,1024]"))
