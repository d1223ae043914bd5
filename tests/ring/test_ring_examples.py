"""Runs each example as its docstring says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHON = [sys.executable, "-W", "error"]


# Processes: on a busy machine the library may tell that a handler held up its loop.
pytestmark = pytest.mark.real_time


def run(name: str) -> list[str]:
    """Return the lines that an example prints; it must end well and print no error."""
    ended = subprocess.run(
        [*PYTHON, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.returncode == 0
    return ended.stdout.splitlines()


def test_the_pipeline_journals_replicates_and_applies() -> None:
    lines = run("ring_pipeline.py")
    assert lines[:4] == [
        "ring of 1024, MULTI producer, BlockingWait",
        "    Journal",
        "    Replicator",
        "        Accounts (after Journal, Replicator) [gates producers]",
    ]
    assert lines[4].startswith("20000 transfers in ")
    assert lines[5].startswith("20000 replicated, confirmed ")
    assert lines[6] == "the same in both places: True"
    assert lines[7] == (
        "balances: {'account-0': 330033, 'account-1': 330000, 'account-2': 329967}"
    )


def test_threads_share_the_ring() -> None:
    lines = run("ring_threads.py")
    assert lines[0] == "published: [10000, 10000, 10000]"
    assert lines[1] == "counted: {0: 10000, 1: 10000, 2: 10000}"
    assert lines[2] == "hottest: {0: 26, 1: 27, 2: 28}"
    assert lines[3].startswith("stored: 30000, at most ")


def test_a_ring_in_front_of_queues() -> None:
    assert run("ring_and_queues.py") == [
        "5000 invoices, 82500 euros",
        "5000 parcels, the last one holds a book",
        "invoices in order: True",
        "the shop waited for a slow store: True",
    ]
