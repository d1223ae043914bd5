"""The flights demo on executors under faults: kill, start it again, look."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.spark.chaos.demo_tables import DemoTables
from tests.spark.chaos.driver import Driver
from tests.spark.chaos.faults import DEMO, WORKING, Fault
from tests.spark.chaos.halts import Halts
from tests.spark.chaos.killing import LONGEST_WAIT, Machines, Trap
from tests.spark.chaos.stream import Condition, Outcome, Stuck
from tests.spark.chaos.year import Year
from tests.support.cluster import java_options

CORES = (2, 4, 3, 1)
"""Of the drivers' starts, by turns."""

PATIENCE = 300.0
"""Seconds for getting to a point, and for a whole run after a kill."""

_EQUAL = re.compile(r"Equal: all [\d,]+ rows are the same as Spark SQL's\.")


class Demo:
    """Runs of the demo, one after the other; the same command whenever one ends.

    A fault is over when a stream has committed another micro-batch, or a batch has
    ended with its proof. The last one is when the run it hit has.
    """

    def __init__(self, machines: Machines, mode: str, home: Path) -> None:
        self._machines = machines
        self._mode = mode
        self._home = home
        self._year = Year(home / "data")
        checkpoints = home / "out" / "stream" / "checkpoint"
        self._tables = DemoTables(machines.database, self._year, checkpoints)
        self._halts = Halts(home / "halts")
        self._drivers: list[Driver] = []
        self._ended = 0
        self._proven = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for driver in self._drivers:
            driver.end()

    @property
    def log(self) -> str:
        """The ends of what the drivers printed."""
        logs = [self._log(number) for number in range(1, len(self._drivers) + 1)]
        return "\n".join(log.read_text(errors="replace")[-1000:] for log in logs)

    def start(self) -> None:
        """Start it."""
        self._start_driver()

    def suffer(self, fault: Fault, *, is_last: bool) -> Outcome:
        """Kill something, wait until the demo is over it, and look."""
        started, drivers = time.monotonic(), len(self._drivers)
        proven, note = self._proven, ""
        trap = self._trap(fault.point)
        try:
            self._kill(fault, trap)
            self._wait_until_over_it(trap, is_last=is_last)
        except Stuck as stuck:
            note = str(stuck)
        finally:
            trap.open_now()
        return Outcome(
            fault=fault,
            way=DEMO,
            source=self._mode,
            parallelism=str(self._cores),
            restarts=len(self._drivers) - drivers,
            finding=self._tables.look(is_complete=is_last and self._proven > proven),
            seconds=time.monotonic() - started,
            note=note,
        )

    def _trap(self, point: str) -> Trap:
        machines = self._machines
        if point == WORKING:
            return _WorkTrap(machines, self._halts)
        return Trap(point, self._halts, machines.database, machines.chance)

    def _kill(self, fault: Fault, trap: Trap) -> None:
        trap.set()
        self._wait_for(trap.is_sprung, f"nobody came to {fault.point!r}")
        if not self._machines.kill(fault.target, trap, self._drivers[-1]):
            msg = f"there was no {fault.target} to kill"
            raise Stuck(msg)
        trap.open_soon()

    def _wait_until_over_it(self, trap: Trap, *, is_last: bool) -> None:
        proven, committed = self._proven, self._tables.committed()

        def is_over_it() -> bool:
            trap.open_if_due()
            if self._proven > proven:
                return True
            if is_last or self._mode == "batch":
                return False
            return self._tables.committed() > committed

        self._wait_for(is_over_it, "it did not get on")

    def _wait_for(self, condition: Condition, otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            has_ended = self._drivers[-1].has_ended()
            if has_ended:
                self._take_note()
            if condition():
                return
            if time.monotonic() > deadline:
                raise Stuck(otherwise)
            if has_ended:
                self._start_driver()
            time.sleep(0.02)

    def _take_note(self) -> None:
        """Look at what the last driver has said, once."""
        if self._ended == len(self._drivers):
            return
        self._ended = len(self._drivers)
        said = self._log(self._ended).read_text(errors="replace")
        if "NOT EQUAL" in said:
            msg = "the proof found other rows than Spark SQL's"
            raise Stuck(msg)
        if self._drivers[-1].status == 0:
            if _EQUAL.search(said) is None:
                msg = "it ended well, and without a proof"
                raise Stuck(msg)
            self._proven += 1

    def _start_driver(self) -> None:
        number = len(self._drivers) + 1
        out, data = self._home / "out", self._year.folder
        arguments = ["--on-executors", "--out", str(out), "--data", str(data)]
        arguments += ["--master", self._machines.cluster.url]
        arguments += ["--sink", self._machines.database.dsn]
        if self._mode == "stream":
            arguments.append("--stream")
        log = self._log(number)
        environment = _small_jvms(self._cores, self._home / "tmp")
        self._drivers.append(Driver("examples.flights", arguments, environment, log))

    def _log(self, number: int) -> Path:
        return self._home / f"driver-{number}.log"

    @property
    def _cores(self) -> int:
        return CORES[len(self._drivers) % len(CORES)]


class _WorkTrap(Trap):
    """Springs at a random time after Python workers have come."""

    def __init__(self, machines: Machines, halts: Halts) -> None:
        super().__init__(WORKING, halts, machines.database, machines.chance)
        self._is_at_work: Callable[[], object] = machines.cluster.python_workers
        self._wait = machines.chance.uniform(0, 2 * LONGEST_WAIT)
        self._from: float | None = None

    def set(self) -> None:
        self._from = None

    def is_sprung(self) -> bool:
        if self._from is None and self._is_at_work():
            self._from = time.monotonic()
        return self._from is not None and time.monotonic() > self._from + self._wait


def _small_jvms(cores: int, scratch: Path) -> dict[str, str]:
    """What the demo has no options for: it runs as its users run it."""
    settings = {"spark.cores.max": str(cores), "spark.executor.memory": "512m"}
    confs = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return {
        "PYSPARK_SUBMIT_ARGS": f"--driver-memory 512m {confs} pyspark-shell",
        "JAVA_TOOL_OPTIONS": " ".join(java_options(scratch)),
    }
