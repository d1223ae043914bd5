"""Runs the whole suite in parts, three at a time, since much of it waits: `make test`.

Each part is a process with its own Spark session, if it needs one. What takes long is
left to CI: `THOROUGH=1 make test` does that, too. With arguments it is one process:
`make test ARGS="-k linger"`.
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.support.thorough import IS_THOROUGH

HERE = Path(__file__).parent
PYTEST = [sys.executable, "-m", "pytest"]
AT_ONCE = 3
# The longest first: so all processes end at about the same time.
PARTS = {
    "spark": ["spark", "test_java_runtime.py"],
    "engine": ["engine"],
    "examples": ["examples"],
    "bridge": ["bridge"],
    "properties": ["properties"],
}
REST = "all the rest"


@dataclass(frozen=True)
class Ended:
    """How a part ended, and what it said."""

    part: str
    status: int
    output: str

    @property
    def summary(self) -> str:
        """The last line of it."""
        counts = self.output.rstrip().rpartition("\n")[2].strip("= ")
        return f"{self.part + ':':<14}{counts}"


def main() -> int:
    """Return 0 if all tests passed."""
    if sys.argv[1:]:
        return subprocess.call([*PYTEST, *sys.argv[1:]])
    began = time.monotonic()
    ended = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        parts = [pool.submit(run, part) for part in [*PARTS, REST]]
        try:
            for future in as_completed(parts):
                ended.append(future.result())
                print(ended[-1].output, flush=True)  # noqa: T201  # a program
        finally:
            # After a Ctrl-C: those that run have got one, too, and tidy up.
            pool.shutdown(cancel_futures=True)
    for each in ended:
        print(each.summary)  # noqa: T201
    print(f"{time.monotonic() - began:.0f} s in all")  # noqa: T201
    # One that a signal killed has a status below 0.
    return int(any(each.status for each in ended))


def run(part: str) -> Ended:
    """Run one part; nothing is in none of them."""
    print(f"{part} has started", flush=True)  # noqa: T201
    if part == REST:
        others = [name for names in PARTS.values() for name in names]
        which = [f"--ignore={HERE / name}" for name in others]
    else:
        which = [str(HERE / name) for name in PARTS[part]]
    if not IS_THOROUGH:
        which += ["-m", "not slow"]
    # A cache of its own: else they would forget each other's failures.
    cache = f"cache_dir=.pytest_cache/{part.replace(' ', '-')}"
    done = subprocess.run(
        [*PYTEST, "-o", cache, *which],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return Ended(part, done.returncode, done.stdout)


if __name__ == "__main__":
    sys.exit(main())
