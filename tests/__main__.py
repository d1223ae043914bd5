"""Runs the suite in parts, several at a time, since much of it waits: `make test`.

Each part is a process with its own Spark session, if it needs one. What takes long is
left to CI: `THOROUGH=1 make test` does that, too. With arguments it is one process:
`make test ARGS="-k linger"`.
"""

import subprocess
import sys
from pathlib import Path

from tests.support import bytecode, fast_java
from tests.support.parts import PYTEST, Part, run_all
from tests.support.thorough import IS_THOROUGH

HERE = Path(__file__).parent
# With fewer, two processors wait for sleeps and servers, and one for the last part.
AT_ONCE = 7 if IS_THOROUGH else 6
# Elsewhere, too, they want the one session of the tests.
IN_THE_SESSION = ["test_spark_examples.py", "test_flights_driver_use.py"]
REST = "all the rest"
# These take longest, and have the processors first: else they would end long after the
# others, which wait much, and alone.
NEXT = ("nice", "-n", "3")
PRIORITY: dict[str, tuple[str, ...]] = {"spark": (), "engine": NEXT, "bridge": NEXT}
LATER = ("nice", "-n", "6")
# The longest first, by the clock and not by what they compute: else the last part would
# begin late, wait much, and end alone. In CI those with clusters and those that strike
# at each point would make their parts by far the longest; else fewer are quicker.
LONGEST_IN_CI: dict[str, list[str]] = {
    "engine": ["engine"],
    "struck": [f"engine/{each.name}" for each in (HERE / "engine").glob("*struck*.py")],
    "clusters": ["examples/test_flights_on_executors.py"],
    "executors": ["spark/executor"],
}
# Their sessions are their own: they needn't make the longest part longer. There are few
# examples to try but in CI.
PROPERTIES = {"properties": ["properties", "test_java_runtime.py", "spark/deploy"]}
PARTS: dict[str, list[str]] = {
    **(LONGEST_IN_CI if IS_THOROUGH else {}),
    "spark": [
        "spark",
        *(f"examples/{name}" for name in IN_THE_SESSION),
    ],
    **({"bridge": ["bridge"]} if IS_THOROUGH else {}),
    "examples": ["examples"],
    **(PROPERTIES if IS_THOROUGH else {}),
    "bridge": ["bridge"],
    "sinks": ["sinks"],
    REST: [],
    "engine": ["engine"],
    **PROPERTIES,
}


def main() -> int:
    """Return 0 if all tests passed."""
    bytecode.keep()
    fast_java.use()
    if sys.argv[1:]:
        return subprocess.call([*PYTEST, *sys.argv[1:]])
    # Sweeps over all points take their time on a busy machine.
    thorough = ["--timeout=180", "--durations=10"]
    options = thorough if IS_THOROUGH else ["-m", "not slow"]
    return run_all(HERE.parent, parts(), AT_ONCE, *options)


def parts() -> list[Part]:
    """Return the parts; nothing is in none of them, and nothing in two."""
    named = {path for paths in PARTS.values() for path in paths}
    made = []
    for name, paths in PARTS.items():
        which = [str(HERE / path) for path in paths]
        which += [f"--ignore={HERE / path}" for path in sorted(named - {*paths})]
        # In CI those with clusters are the longest, and none is to wait for another.
        niceness = () if IS_THOROUGH else PRIORITY.get(name, LATER)
        made.append(Part(name, which, (*niceness, *PYTEST)))
    return made


if __name__ == "__main__":
    sys.exit(main())
