"""Runs each small example as its docstring says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.running import told

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHON = [sys.executable, "-W", "error"]


def run(name: str) -> str:
    """Return what an example prints; it must end well and print no error."""
    command = [*PYTHON, str(EXAMPLES / name)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=50, check=False
    )
    assert told(ended.stderr) == ""
    assert ended.returncode == 0
    return ended.stdout


def test_quickstart() -> None:
    assert run("quickstart.py").splitlines() == [
        "9901 clicks in one batch, from /page/0 on",
        "99 orders, 4851 euros",
        "51 orders, 6324 euros",
        "5099 clicks in one batch, from /page/9901 on",
        "15150 of 15150 items were handled",
    ]


def test_a_slow_receiver_slows_its_producer_down() -> None:
    output = run("back_pressure.py")

    assert "5000 items were confirmed by the receiver" in output
    assert "at most 200 of them waited at the same time" in output
    taken = re.search(r"producing took (\S+) s", output)
    assert taken is not None
    # The receiver takes 10 ms for 100 items, and the last 300 are taken afterwards.
    assert float(taken[1]) >= 0.46


def test_only_what_failed_is_sent_again() -> None:
    lines = run("bulk.py").splitlines()
    logged = [line for line in lines if line.startswith("documents: ")]

    assert [line for line in lines if line not in logged] == [
        "a bulk of 1000",
        "a bulk of 3",
        "a bulk of 1",
        "given up: [500], since 1 item failed, at 0",
        "999 handled, 1 failed",
        "999 documents are stored",
    ]
    assert len(logged) == 2
    assert re.search(r"; attempt 2 of 3 in 0\.0\d+ s$", logged[0])
    assert "items are tried again in main.<locals>.send ... 1 more time" in logged[1]


def test_the_recipes_lose_nothing() -> None:
    assert run("recipes.py").splitlines() == [
        "grpc: 15000",
        "l1: 25000",
        "l2: 500",
        "logs: 15000",
        "remote: 15000",
        "sql: 15000",
        "top_n: 300",
        "traces: 15000",
        "at most 4 statements and 2 exports",
    ]


def test_who_floods_delays_himself() -> None:
    lines = run("tenants.py").splitlines()
    assert lines[0] == "20400 orders were stored"
    seconds = [float(line.split()[-2]) for line in lines[1:]]
    # A thousand of the import's may wait, of which a call of 5 ms takes a hundred.
    assert seconds[0] >= 0.05
    assert len(seconds) == 2


def test_threads_get_a_receipt() -> None:
    output = run("from_threads.py")

    assert "handled: {0: 25000, 1: 25000, 2: 25000, 3: 25000}" in output
    batches = re.search(r"(\d+) batches took them all", output)
    assert batches is not None
    assert int(batches[1]) >= 100, "no batch exceeds the 1000 that may wait"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_prefork_workers_lose_no_row() -> None:
    assert run("prefork.py") == "6001 rows are there\n"


def test_logging_goes_on_while_the_collector_is_dead() -> None:
    command = [*PYTHON, str(EXAMPLES / "dead_collector.py")]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=50, check=True
    )
    first, second = ended.stdout.splitlines()
    assert first == "2000 lines were collected, 0 dropped"
    dropped = int(second.split()[3])
    # The rest waited, or was in the collector's hands.
    assert 20_000 - 1500 <= dropped <= 20_000 - 1000
    assert f"({dropped} in all)" in ended.stderr
