"""Kills parts of a running Spark cluster at bad moments, and counts rows.

    python -m tests.spark.chaos --kills 32 --seed 1

Exit code 1 if a row was lost, doubled or made up, or a stream did not get on.
`--way naive` runs the fence per partition, in which this must find losses.
"""

# ruff: noqa: T201  # a program prints

import argparse
import random
import signal
import sys
import time
from contextlib import closing

from tests.spark.chaos.campaign import divide, run
from tests.spark.chaos.checkpoint import SOURCES
from tests.spark.chaos.faults import DEMO
from tests.spark.chaos.report import HEAD, line, summary
from tests.spark.chaos.stream import Outcome
from tests.spark.chaos.ways import WAYS
from tests.support import fast_java


def main() -> int:
    """Run what the command line asks for."""
    options = parse()
    fast_java.use()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, tidy_up_and_end)
    ways = options.way or [*(way for way in WAYS if way != "naive"), DEMO]
    sources = options.source or list(SOURCES)
    parts = divide(ways, sources, options.kills, random.Random(options.seed))
    print(f"{options.kills} kills, seed {options.seed}\n{HEAD}", flush=True)
    started = time.monotonic()
    outcomes: list[Outcome] = []
    try:
        with closing(run(parts, options.seed, tell=complain)) as running:
            for outcome in running:
                outcomes.append(outcome)
                print(line(len(outcomes), outcome), flush=True)
    finally:
        print(summary(outcomes, time.monotonic() - started), flush=True)
    clean = [outcome.is_clean for outcome in outcomes]
    return 0 if clean and all(clean) else 1


def tidy_up_and_end(number: int, _: object) -> None:
    """End by SystemExit, so that no process is left; more signals don't disturb it."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", action="append", choices=sorted((*WAYS, DEMO)))
    parser.add_argument("--source", action="append", choices=SOURCES)
    return parser.parse_args()


def complain(text: str) -> None:
    """Show what isn't part of the table."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
