"""Runs the whole suite as two processes, since most of it waits: `make test`.

What needs a JVM runs beside all the rest, and is shown after it. With arguments it is
one process: `make test ARGS="-k linger"`.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WITH_JVM = [HERE / "spark", HERE / "examples", HERE / "test_java_runtime.py"]
PYTEST = [sys.executable, "-m", "pytest"]


def main() -> int:
    """Return 0 if all tests passed."""
    if sys.argv[1:]:
        return subprocess.call([*PYTEST, *sys.argv[1:]])
    with tempfile.TemporaryFile() as output:
        # A cache of its own: else the two would forget each other's failures.
        beside = [*PYTEST, "-o", "cache_dir=.pytest_cache/jvm", *map(str, WITH_JVM)]
        process = subprocess.Popen(beside, stdout=output, stderr=subprocess.STDOUT)
        try:
            rest = subprocess.call(
                [*PYTEST, *(f"--ignore={each}" for each in WITH_JVM)]
            )
        finally:
            # After a Ctrl-C: it has got one, too, and tidies up.
            process.wait()
            output.seek(0)
            sys.stdout.write(output.read().decode("utf-8", "replace"))
    return rest or process.returncode


if __name__ == "__main__":
    sys.exit(main())
