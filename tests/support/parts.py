"""Runs a suite in parts, several at a time; failures on real clocks run again, alone.

A test on a real clock can fail because other parts took the processors at the wrong
moment. It gets a second run, when they have all ended, and has to pass there.
"""

# ruff: noqa: T201  # for a program

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.real_clocks import FAILURES

PYTEST: Final = (sys.executable, "-m", "pytest")
MOST_AGAIN = 2
"""More failures than that are not a busy machine's doing."""

TESTS_FAILED = 1
"""pytest's status, where nothing worse has happened."""


@dataclass(frozen=True)
class Part:
    """Some of the suite's tests, for a process of its own: by pytest's arguments."""

    name: str
    which: Sequence[str]
    pytest: Sequence[str] = PYTEST

    @property
    def cache(self) -> Path:
        """A cache of its own: else the parts would forget each other's failures."""
        return Path(".pytest_cache", self.name.replace(" ", "-"))

    def run(self, root: Path, *options: str) -> "Ended":
        """Run it in the folder of the suite, and wait for its end."""
        print(f"{self.name} has started", flush=True)
        noted = root / self.cache / "v" / FAILURES
        # Notes of an earlier run must not count: this one may end without a note.
        noted.unlink(missing_ok=True)
        done = subprocess.run(
            [*self.pytest, "-o", f"cache_dir={self.cache}", *options, *self.which],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        failures = json.loads(noted.read_text()) if noted.exists() else {}
        return Ended(self, done.returncode, done.stdout, failures)


@dataclass(frozen=True)
class Ended:
    """How a part ended, and what it said.

    `failures` maps the id of each test that failed to whether it is on a real clock.
    """

    part: Part
    status: int
    output: str
    failures: Mapping[str, bool] = field(default_factory=dict)

    @property
    def counts(self) -> str:
        """Pytest's last line of counts, after which others may write more."""
        lines = re.findall(r"^=+ (.* in [\d.]+s.*?) =+$", self.output, re.MULTILINE)
        return lines[-1] if lines else f"ended with status {self.status}"


def run_all(root: Path, parts: Sequence[Part], at_once: int, *options: str) -> int:
    """Run all parts, print what they say, and return 0 if all tests have passed."""
    began = time.monotonic()
    ended = _run_beside(root, parts, at_once, *options)
    failed = [each for each in ended if each.status != 0]
    again = [each.part.run(root, "--last-failed") for each in to_run_again(failed)]
    for each in again:
        print(each.output)
    for each in ended:
        print(f"{each.part.name + ':':<14}{each.counts}")
    print(f"{total(ended)}; {time.monotonic() - began:.0f} s in all")
    for first, second in zip(failed, again, strict=False):
        outcome = "failed alone, too" if second.status else "passed alone"
        for test in first.failures:
            print(f"failed beside others, {outcome}: {test}")
    # One that a signal killed has a status below 0.
    return int(any(each.status for each in again or failed))


def to_run_again(failed: Sequence[Ended]) -> Sequence[Ended]:
    """Return all parts that failed if a busy machine may be the reason, else none."""
    if any(each.status != TESTS_FAILED or not each.failures for each in failed):
        return []
    on_real_clocks = [real for each in failed for real in each.failures.values()]
    may_be = all(on_real_clocks) and len(on_real_clocks) <= MOST_AGAIN
    return failed if may_be else []


def total(ended: Sequence[Ended]) -> str:
    """Return the sum of all counts, such as "7 passed, 2 left for THOROUGH=1"."""
    sums = Counter[str]()
    for each in ended:
        for number, what in re.findall(r"(\d+) ([a-z]+)", each.counts):
            sums[what] += int(number)
    left = sums.pop("deselected", 0)
    counts = [f"{number} {what}" for what, number in sums.items()]
    if left:
        counts.append(f"{left} left for CI (THOROUGH=1 runs them, too)")
    return ", ".join(counts)


def _run_beside(
    root: Path, parts: Sequence[Part], at_once: int, *options: str
) -> list[Ended]:
    with ThreadPoolExecutor(at_once) as pool:
        # Without what an earlier run has left: only this one's failures run again.
        started = [
            pool.submit(part.run, root, "--cache-clear", *options) for part in parts
        ]
        try:
            for future in as_completed(started):
                print(future.result().output, flush=True)
        finally:
            # After a Ctrl-C: those that run have got one, too, and tidy up.
            pool.shutdown(cancel_futures=True)
    return [future.result() for future in started]
