"""Starts and kills driver processes, which end with their JVM or without it."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.cluster import HOST, ROOT
from tests.support.process_family import ProcessFamily, kill, parent_of

PARTS = ("driver", "driver's Python", "driver's JVM")
"""What of a driver is killed."""


class Driver:
    """One driver process, with the JVM and the Python workers that it starts.

    `module` is its program, `environment` what is in it besides the harness's own.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        self._family = ProcessFamily()
        self._parts = dict(zip(PARTS, ((), (module,), ("java",)), strict=True))
        scratch = log.parent / "tmp"
        scratch.mkdir(exist_ok=True)
        whole = self._family.environment() | {
            **environment,
            "SPARK_LOCAL_DIRS": str(scratch),
            "TMPDIR": str(scratch),
            "SPARK_LOCAL_IP": HOST,
        }
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env=whole,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """Whether the driver needs to be started again."""
        return self.status is not None

    @property
    def status(self) -> int | None:
        """How it has ended, or None."""
        return self._process.poll()

    def kill(self, part: str) -> None:
        """SIGKILL one of `PARTS`.

        What outlives it is not waited for: whoever restarts a driver doesn't see a JVM
        that still runs.
        """
        self._family.kill(*self._parts[part])

    def kill_commit_worker(self, caught: int | None) -> bool:
        """SIGKILL the process that commits for Python data sources; False if none.

        Which is the one that was caught, if that is known.
        """
        runners = self._family.pids("python_streaming_sink_runner")
        # Without the daemon over them.
        workers = [pid for pid in runners if parent_of(pid) in runners]
        killed = [kill(pid) for pid in ([caught] if caught else workers)]
        return any(killed)

    def end(self) -> None:
        """End whatever is left of it."""
        self._family.end()
        self._process.wait(10)
