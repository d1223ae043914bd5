"""Traps that catch the sink at a point of its work, and who is killed then."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.spark.chaos.database import GATES, Database
from tests.spark.chaos.driver import PARTS, Driver
from tests.spark.chaos.faults import RANDOM
from tests.spark.chaos.halts import Halts
from tests.support.cluster import Cluster
from tests.support.postgres import Server
from tests.support.process_family import kill

LONGEST_WAIT = 2.0
"""Of a random kill."""

LONGEST_OUTAGE = 2.0
"""Of the database, and of a worker daemon."""

LONGEST_LIMBO = 12.0
"""Of a transaction whose client is dead: longer than a restart takes."""


class Trap:
    """Stops the sink at a point until `open_soon` or `open_if_due` lets it go."""

    def __init__(
        self, point: str, halts: Halts, database: Database, chance: random.Random
    ) -> None:
        self._point = point
        self._halts = halts
        self._database = database
        self._chance = chance
        self._due = 0.0
        self.caught: int | None = None

    def set(self) -> None:
        """From now on somebody may be caught."""
        if self._point == RANDOM:
            self._due = time.monotonic() + self._chance.uniform(0, LONGEST_WAIT)
        elif self._point in GATES:
            self._database.close_gate(self._point)
        else:
            self._halts.arm(self._point)

    def is_sprung(self) -> bool:
        """Whether it is time to kill; `caught` then is the process, if it is known."""
        if self._point == RANDOM:
            return time.monotonic() > self._due
        if self._point in GATES:
            return self._database.stands_at_gate(self._point)
        self.caught = self._halts.halted(self._point)
        return self.caught is not None

    def open_soon(self) -> None:
        """Let survivors go on; a transaction not before a random time has passed.

        Its client may be dead, and its COMMIT then comes in the middle of the next
        attempt, or after it.
        """
        self._halts.release()
        if self._point in GATES:
            self._due = time.monotonic() + self._chance.uniform(0, LONGEST_LIMBO)

    def open_now(self) -> None:
        """Let everybody go on, now."""
        self._halts.release()
        if self._point in GATES:
            self._database.open_gates()

    def open_if_due(self) -> None:
        """Let the transaction go on when its time has come."""
        if self._point in GATES and time.monotonic() > self._due:
            self._database.open_gates()
            self._due = float("inf")


@dataclass(frozen=True)
class Machines:
    """All that runs beside the drivers."""

    cluster: Cluster
    server: Server
    database: Database
    chance: random.Random

    def kill(self, target: str, trap: Trap, driver: Driver) -> bool:
        """SIGKILL the target, if possible the one that was caught; False if none."""
        if target in PARTS:
            driver.kill(target)
            return True
        if target == "commit worker":
            return driver.kill_commit_worker(trap.caught)
        kills: dict[str, Callable[[Trap], bool]] = {
            "Python worker": self._kill_python_worker,
            "executor": self._kill_executor,
            "worker daemon": self._kill_worker_daemon,
            "machine": self._kill_machine,
            "database": self._restart_database,
        }
        return kills[target](trap)

    def _kill_python_worker(self, trap: Trap) -> bool:
        if trap.caught in self.cluster.python_workers():
            return kill(trap.caught)
        return self.cluster.kill_python_worker(self.chance) is not None

    def _kill_executor(self, trap: Trap) -> bool:
        executor = self.cluster.executor_of(trap.caught) if trap.caught else None
        if executor is not None:
            return kill(executor)
        return self.cluster.kill_executor(self.chance) is not None

    def _kill_worker_daemon(self, trap: Trap) -> bool:
        return self._missing_for_a_while(self.cluster.kill_worker(self.chance), trap)

    def _kill_machine(self, trap: Trap) -> bool:
        return self._missing_for_a_while(self.cluster.kill_machine(self.chance), trap)

    def _missing_for_a_while(self, worker: str, trap: Trap) -> bool:
        self._wait_out(trap)
        self.cluster.start_worker(worker)
        return True

    def _restart_database(self, trap: Trap) -> bool:
        self.server.stop()
        self.database.disconnect()
        self._wait_out(trap)
        self.server.start()
        return True

    def _wait_out(self, trap: Trap) -> None:
        # The sink goes on during the outage, or does not see but its consequences.
        if self.chance.random() < 0.5:
            trap.open_soon()
        time.sleep(self.chance.uniform(0, LONGEST_OUTAGE))
