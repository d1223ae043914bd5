"""Calls to a real service that limits, fails, hangs and is killed: each row once.

Python workers are killed, too; on a local master, and over Spark Connect.
"""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.spark.calls.hostile import ROWS
from tests.spark.calls.hostile_service import FAULTS, is_poison
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.spark,
    pytest.mark.slow,  # Each starts JVMs of its own.
    pytest.mark.timeout(400),
]

HAS_CONNECT = all(map(importlib.util.find_spec, ("grpc", "grpc_status", "zstandard")))
LIVES = (40, 90, 0)
"""In the middle of which call it is killed, each time that it runs."""


@contextmanager
def killed_and_restarted(log: Path) -> Iterator[int]:
    """Run the service, again and again; returns its port."""
    port, is_over = free_port(), Event()
    running: list[subprocess.Popen[bytes]] = []

    def run() -> None:
        for last in LIVES:
            if is_over.is_set():
                return
            command = [sys.executable, "-m", "tests.spark.calls.hostile_service"]
            running.append(subprocess.Popen([*command, f"{port}", f"{log}", f"{last}"]))
            running[-1].wait()

    thread = Thread(target=run)
    thread.start()
    try:
        yield port
    finally:
        is_over.set()
        running[-1].kill()
        thread.join()


def run(master: str, folder: Path) -> tuple[dict[str, Any], Counter[str]]:
    """Run the program there; returns what it prints, and the service's log."""
    with killed_and_restarted(folder / "log") as port:
        program = [sys.executable, "-m", "tests.spark.calls.hostile"]
        done = subprocess.run(
            [*program, master, str(folder), f"{port}"],
            timeout=380,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer, Counter((folder / "log").read_text().split())


@pytest.mark.parametrize(
    "master",
    [
        "local[2,4]",
        pytest.param(
            "connect",
            marks=pytest.mark.skipif(
                not HAS_CONNECT, reason="needs pip install 'pyspark[connect]'"
            ),
        ),
    ],
)
def test_each_row_is_there_once_whatever_the_service_does(
    tmp_path: Path, master: str
) -> None:
    answer, log = run(master, tmp_path)

    good = [[n, 10 * n] for n in range(ROWS)]
    error = "Poison: not this one"
    assert answer == {
        "in order": good,
        "flat": [[n, y] for n, y in good for _ in range(n % 3)],
        # A column of both is the input's where the call failed.
        "column": [[n, None, error] if is_poison(n) else [n, y, None] for n, y in good],
        "null": [[None, None] if is_poison(n) else [n, y] for n, y in good],
        "stream": good,
        "died": 5,
    }
    assert log["killed"] == 2
    assert all(log[fault] for fault in FAULTS.values())
