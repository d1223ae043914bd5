"""Runs the suite's core with eager tasks, on a Python that has them (`make eager`).

    python -m tests.stress.eager [pytest arguments]

Looks for Python 3.12 or newer (`EAGER_PYTHON=...` picks one), makes `.venv-eager` for
it, and says why it skips where there is none.
"""

# ruff: noqa: T201  # a program prints

import os
import subprocess
import sys
from pathlib import Path

from tests.support.parts import Part, run_all
from tests.support.pythons import VERSIONS, find, prepare

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-eager"
# What is slow has run without eager tasks.
QUICK_CORE = ("tests/engine", "tests/policies", "-m", "not slow")
PLUGIN = ("-p", "tests.stress.eager_tasks")
WANTED = [("--editable", "."), ("--group", "test-core")]


def main(arguments: list[str]) -> int:
    chosen = os.environ.get("EAGER_PYTHON")
    found = (find(version, chosen=chosen) for version in reversed(VERSIONS[1:]))
    python = next(filter(None, found), None)
    if python is None:
        print("skipped: no Python 3.12 or newer with venv here, so no eager tasks")
        return 0
    inside = prepare(python, VENV, WANTED)
    pytest = (str(inside), "-m", "pytest", *PLUGIN)
    if arguments:
        return subprocess.run([*pytest, *arguments], cwd=ROOT, check=False).returncode
    return run_all(ROOT, [Part("eager tasks", QUICK_CORE, pytest)], 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
