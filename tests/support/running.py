"""Programs that a test starts, and that end with it."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stderr: int = subprocess.PIPE,
    own_group: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """Run a program; if the test fails before its end, it is killed, not waited for.

    `own_group` is for one whose signals are for its children, too.
    """
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        process_group=0 if own_group else None,
    ) as process:
        kill = os.killpg if own_group else os.kill
        try:
            yield process
        finally:
            if process.poll() is None:
                kill(process.pid, signal.SIGKILL)


# From the process that forks Spark's Python workers, if the JVM has ended before it.
_SPARKS_OWN = re.compile(
    r"Traceback \(most recent call last\):\n"
    r'(?:  File "\S+/pyspark/daemon\.py", .*\n(?:    .*\n)*)+'
    r"BrokenPipeError: .*\n"
)


def told(log: str) -> str:
    """Return a log without lines that are due to a busy machine, or Spark's own."""
    lines = _SPARKS_OWN.sub("", log).splitlines(keepends=True)
    return "".join(line for line in lines if "held up the event loop" not in line)
