"""Finds other Pythons on this machine, and makes environments for them."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
CHECK = "import ensurepip, sys, venv; sys.exit('{}' != '%d.%d' % sys.version_info[:2])"


def find(version: str, *, chosen: str | None = None) -> Path | None:
    """Return a Python of `version` ("3.12") that can make virtual environments."""
    for python in [Path(chosen)] if chosen else candidates(version):
        try:
            tried = subprocess.run(
                [python, "-c", CHECK.format(version)],
                check=False,
                capture_output=True,
                timeout=60,
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return python
    return None


def candidates(version: str) -> Iterator[Path]:
    for name in (f"python{version}", "python3"):
        if (found := shutil.which(name)) is not None:
            yield Path(found)
    # A shim in PATH only works for the versions that are switched on.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}*/bin/python"), reverse=True)


def prepare(python: Path, home: Path, wanted: Sequence[tuple[str, str]]) -> Path:
    """Make an environment, unless it is newer than what it is made from.

    Returns its Python.
    """
    inside, ready = home / "bin" / "python", home / ".ready"
    made_from = ROOT / "pyproject.toml"
    if ready.exists() and ready.stat().st_mtime > made_from.stat().st_mtime:
        return inside
    print(f"Installing the test tools into {home.name}.", flush=True)  # noqa: T201
    subprocess.run([python, "-m", "venv", "--clear", home], check=True)
    pip = (inside, "-m", "pip", "--disable-pip-version-check", "-qq", "install")
    subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True, cwd=ROOT)
    # All in one go: the groups' requirements are then met by the clone itself.
    everything = [each for pair in wanted for each in pair]
    subprocess.run([*pip, *everything], check=True, cwd=ROOT)
    ready.touch()
    return inside
