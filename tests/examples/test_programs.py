"""Runs the programs to start from: undisturbed, and stopped in their middle."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.bridge.background import wait_until
from tests.support.running import running

ROOT = Path(__file__).parents[2]
Program: TypeAlias = "subprocess.Popen[str]"
InTheMiddle: TypeAlias = Callable[[Program, Path], None]
"""Returns when the program, whose files are there, is in its middle."""

# The end of what each prints where nothing is lost.
SERVICE = r"(\d+) accepted, (\d+) refused\n0 of the accepted are lost\n$"
SHIPPER = r"(\d+) lines are noted as sent, 0 of them are lost\n$"
EXPORTER = (
    r"spans: accepted (\d+), rejected (\d+), waiting 0, in_flight 0, handled \1,"
    r" retried (\d+), waiting_producers 0, oldest_age 0(.*)\n"
    r"measurements: accepted (\d+), rejected \d+, waiting 0, in_flight 0, handled \5,"
    r".* oldest_age 0.*\n$"
)
WINDOWS = (
    r"(?P<views>\d+) came to L1, (\d+) came to L2, \d+ came to store\n"
    r"(?P=views) views are stored; (\d+) windows are over\n$"
)
WSGI = r"(\d+) accepted, stored by (\d+) workers\n0 are lost, 0 are there twice\n$"


def started(name: str, directory: Path) -> AbstractContextManager[Program]:
    return running(
        [sys.executable, "-W", "error", "-m", f"examples.{name}"],
        cwd=ROOT,
        environment={**os.environ, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
        own_group=True,
    )


def ended(program: Program, account: str) -> re.Match[str]:
    """Wait for its end; return its account, which must fit the pattern."""
    output, log = program.communicate(timeout=50)
    found = re.search(account, output)
    assert found is not None, output + log
    assert "the account is wrong" not in log
    return found


def proved(name: str, account: str, directory: Path) -> re.Match[str]:
    with started(name, directory) as program:
        found = ended(program, account)
    assert program.returncode == 0
    return found


@pytest.mark.parametrize(
    "name, by_hand",
    [
        ("service", 115),
        ("shipper", 139),
        ("exporter", 146),
        ("windows", 140),
        ("wsgi", 107),
    ],
)
def test_a_program_is_shorter_than_before_the_library_had_what_it_needs(
    name: str, by_hand: int
) -> None:
    program = (ROOT / "examples" / f"{name}.py").read_text("utf-8")
    assert sum(map(bool, map(str.strip, program.splitlines()))) < by_hand


def test_the_service_answers_at_once_and_stores_what_it_accepted(
    tmp_path: Path,
) -> None:
    accepted, refused = map(int, proved("service", SERVICE, tmp_path).groups())
    # While the database is locked, one batch and the buffer are all that is accepted.
    assert accepted > 500
    assert refused >= 199


def test_the_shipper_sends_again_what_failed_and_goes_on_where_it_was_killed(
    tmp_path: Path,
) -> None:
    packages, sent = proved("shipper", r"packages: (.*)\n" + SHIPPER, tmp_path).groups()
    # Too many requests; three were not taken; only these; then the rest.
    assert packages == "1000 1000 3 1000 1000"
    assert sent == "10000"


def test_the_exporter_tells_of_retries_and_of_why_batches_were_cut(
    tmp_path: Path,
) -> None:
    spans, refused, retried, cuts, measurements = proved(
        "exporter", EXPORTER, tmp_path
    ).groups()
    assert int(spans) + int(refused) == int(measurements) == 8400
    assert int(retried) > 0
    assert re.match(r", full \d+", cuts)


def test_windows_are_merged_twice_and_flushed_through(tmp_path: Path) -> None:
    flushed = "400000 came to L1, .*\n400000 views are stored; .*\n"
    views, merged, over = proved("windows", flushed + WINDOWS, tmp_path).groups()
    assert int(views) == 420_000
    assert int(merged) < 40_000
    assert int(over) > 0


def test_forked_workers_are_replaced_and_reloaded_and_lose_no_row(
    tmp_path: Path,
) -> None:
    accepted, workers = map(int, proved("wsgi", WSGI, tmp_path).groups())
    assert accepted >= 1000
    assert workers > 4


def once_it_stores(table: str) -> InTheMiddle:
    def has_rows(directory: Path) -> bool:
        for database in directory.rglob("*.db"):
            # It is locked at times, and has no table at first.
            with (
                suppress(sqlite3.OperationalError),
                closing(sqlite3.connect(database, timeout=0)) as connection,
            ):
                return bool(connection.execute(f"SELECT 1 FROM {table}").fetchone())
        return False

    return lambda _, directory: wait_until(lambda: has_rows(directory))


def once_it_has_sent(_: Program, directory: Path) -> None:
    def has_sent() -> bool:
        # Its first note is not made in one step: it may be empty yet.
        return any(int(note.read_text() or 0) > 0 for note in directory.rglob("*.sent"))

    wait_until(has_sent)


def once_it_tells(program: Program, _: Path) -> None:
    assert program.stdout is not None
    program.stdout.readline()


@pytest.mark.parametrize(
    "sign", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "name, account, wait_for_the_middle",
    [
        pytest.param("service", SERVICE, once_it_stores("events"), id="service"),
        pytest.param("shipper", SHIPPER, once_it_has_sent, id="shipper"),
        pytest.param("exporter", EXPORTER, once_it_tells, id="exporter"),
        pytest.param("windows", WINDOWS, once_it_stores("views"), id="windows"),
        pytest.param("wsgi", WSGI, once_it_stores("rows"), id="wsgi"),
    ],
)
def test_whoever_is_stopped_in_the_middle_has_a_true_account(
    name: str,
    account: str,
    wait_for_the_middle: InTheMiddle,
    sign: signal.Signals,
    tmp_path: Path,
) -> None:
    # On a busy machine it may be through before the signal comes.
    for attempt in range(3):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        with started(name, directory) as program:
            wait_for_the_middle(program, directory)
            if sign is signal.SIGINT:
                # As a terminal does it: to what the program has started, too.
                os.killpg(program.pid, sign)
            else:
                program.send_signal(sign)
            ended(program, account)
        if program.returncode:
            break
    assert program.returncode in (128 + sign, -sign)
