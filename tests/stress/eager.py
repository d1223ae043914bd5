"""Runs the suite's core with eager tasks, on a Python that has them (`make eager`).

    python -m tests.stress.eager [pytest arguments]

Looks for Python 3.12 or newer (`EAGER_PYTHON=...` picks one), makes `.venv-eager` for
it, and says why it skips where there is none.
"""

# ruff: noqa: T201  # a program prints

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-eager"
READY = VENV / ".ready"
INSIDE = VENV / "bin" / "python"
CORE = ("tests/engine", "tests/policies")
CHECK = (
    "import ensurepip, sys, venv; sys.exit(not (3, 12) <= sys.version_info < (3, 14))"
)


def candidates() -> Iterator[Path]:
    if chosen := os.environ.get("EAGER_PYTHON"):
        yield Path(chosen)
        return
    for name in ("python3", "python3.13", "python3.12"):
        if (found := shutil.which(name)) is not None:
            yield Path(found)
    # A shim in PATH only works for the versions that are switched on.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.1[23]*/bin/python"), reverse=True)


def find() -> Path | None:
    for python in candidates():
        try:
            tried = subprocess.run(
                [python, "-c", CHECK], check=False, capture_output=True, timeout=60
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return python
    return None


def prepare(python: Path) -> None:
    """Make the environment, unless it is newer than what it is made from."""
    made_from = ROOT / "pyproject.toml"
    if READY.exists() and READY.stat().st_mtime > made_from.stat().st_mtime:
        return
    print(f"Installing the test tools into {VENV.name}.", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", VENV], check=True)
    for wanted in (
        ("--upgrade", "pip>=25.1"),
        ("--editable", "."),
        ("--group", "test"),
    ):
        pip = (INSIDE, "-m", "pip", "--disable-pip-version-check", "-qq", "install")
        subprocess.run([*pip, *wanted], check=True, cwd=ROOT)
    READY.touch()


def main(arguments: list[str]) -> int:
    python = find()
    if python is None:
        print("skipped: no Python 3.12 or 3.13 with venv here, so no eager tasks")
        return 0
    prepare(python)
    plugin = ["-p", "tests.stress.eager_tasks", "-p", "no:cacheprovider"]
    command = [INSIDE, "-m", "pytest", "-q", *plugin, *(arguments or CORE)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
