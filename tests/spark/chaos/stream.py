"""One stream under faults: kill, restart with another parallelism, look."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.spark.chaos.checkpoint import Checkpoint
from tests.spark.chaos.driver import Driver
from tests.spark.chaos.faults import Fault
from tests.spark.chaos.halts import FOLDER, Halts
from tests.spark.chaos.job import Job
from tests.spark.chaos.killing import Machines, Trap
from tests.spark.chaos.oracle import Finding, look

Start = tuple[int, int]
"""Cores and `spark.default.parallelism` of a driver's start."""

Condition = Callable[[], bool]

PATIENCE = 120.0
"""Seconds for a start, for getting to a point, and for getting over a kill."""


class Stuck(Exception):
    """The stream did not get on within `PATIENCE`."""


@dataclass(frozen=True)
class Outcome:
    """One kill, what it took to get over it, and what the table then held."""

    fault: Fault
    way: str
    source: str
    parallelism: str
    restarts: int
    finding: Finding
    seconds: float
    note: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost or doubled, and the stream went on."""
        return self.finding.is_clean and not self.note


class Stream:
    """A query with its checkpoint and table, restarted whenever its driver ends."""

    def __init__(self, machines: Machines, job: Job, starts: Sequence[Start]) -> None:
        self._machines = machines
        self._job = job
        self._starts = starts
        self._chance = machines.chance
        self._log = Path(job.checkpoint).with_suffix(".log")
        self._checkpoint = Checkpoint(Path(job.checkpoint), job.source)
        self._halts = Halts(Path(job.halts))
        self._drivers: list[Driver] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_drivers()

    @property
    def log(self) -> str:
        """The end of what the drivers printed."""
        return self._log.read_text(errors="replace")[-4000:]

    def start(self) -> None:
        """Start it, and wait for a first batch."""
        self._start_driver()
        self._wait_beyond(-1)

    def suffer(self, fault: Fault, *, is_last: bool) -> Outcome:
        """Kill something, wait until the stream is over it, and look."""
        started = time.monotonic()
        before, drivers = self._parallelism(), len(self._drivers)
        note = ""
        database = self._machines.database
        trap = Trap(fault.point, self._halts, database, self._chance)
        try:
            self._kill(fault, trap)
            if is_last:
                self._end()
        except Stuck as stuck:
            note = str(stuck)
        finally:
            trap.open_now()
        after = self._parallelism()
        return Outcome(
            fault=fault,
            way=self._job.way,
            source=self._job.source,
            parallelism=before if after == before else f"{before} > {after}",
            restarts=len(self._drivers) - drivers,
            finding=look(self._checkpoint, database, self._job.table),
            seconds=time.monotonic() - started,
            note=note,
        )

    def _kill(self, fault: Fault, trap: Trap) -> None:
        trap.set()
        self._wait_for(trap.is_sprung, f"nobody came to {fault.point!r}")
        planned = self._checkpoint.planned()
        if not self._machines.kill(fault.target, trap, self._drivers[-1]):
            msg = f"there was no {fault.target} to kill"
            raise Stuck(msg)
        trap.open_soon()
        self._wait_beyond(planned, trap)

    def _end(self) -> None:
        """Wait for what the dead still have the server do: COMMITs, most of all."""
        self._end_drivers()
        self._machines.database.open_gates()
        deadline = time.monotonic() + PATIENCE
        while not self._machines.database.is_quiet():
            if time.monotonic() > deadline:
                msg = "a transaction of a dead client does not end"
                raise Stuck(msg)
            time.sleep(0.1)

    def _end_drivers(self) -> None:
        for driver in self._drivers:
            driver.end()

    def _wait_beyond(self, batch: int, trap: Trap | None = None) -> None:
        """Wait until Spark has committed a batch after this one."""

        def is_beyond() -> bool:
            if trap is not None:
                trap.open_if_due()
            return self._checkpoint.committed() > batch

        self._wait_for(is_beyond, f"no batch after {batch} was committed")

    def _wait_for(self, condition: Condition, otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise Stuck(otherwise)
            if self._drivers[-1].has_ended():
                self._start_driver()
            time.sleep(0.02)

    def _start_driver(self) -> None:
        last = (self._job.cores, self._job.parallelism) if self._drivers else None
        others = [start for start in self._starts if start != last]
        cores, parallelism = self._chance.choice(others or self._starts)
        self._job = replace(self._job, cores=cores, parallelism=parallelism)
        told = [self._job.to_json()]
        halts = {FOLDER: self._job.halts}
        driver = Driver("tests.spark.chaos.job", told, halts, self._log)
        self._drivers.append(driver)

    def _parallelism(self) -> str:
        return f"{self._job.cores}/{self._job.parallelism}"
