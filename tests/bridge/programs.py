"""Programs that end in their own ways, on each Python that is here."""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import pytest

from tests.support.pythons import VERSIONS
from tests.support.running import told

ROOT = Path(__file__).parents[2]

# What the package needs, and is the same for each Python.
_NEEDED = ("anyio", "idna", "sniffio", "typing_extensions")

PREFACE = """
import asyncio, atexit, contextlib, gc, logging, os, signal, sys, threading, time
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
logging.basicConfig(format="%(levelname)s %(message)s")
from batchqueue_async import *
"""


def _others() -> list[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    found: list[Path] = []
    for version in VERSIONS:
        if version != own:
            # A shim in PATH only works for the versions that are switched on.
            here = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
            in_path = shutil.which(f"python{version}")
            if in_path is not None and not here and _runs(in_path):
                here = [Path(in_path)]
            found += here[:1]
    return found


def _runs(python: str) -> bool:
    return (
        subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode
        == 0
    )


_OTHERS = _others()
PYTHONS = [Path(sys.executable), *_OTHERS]
each_python = pytest.mark.parametrize(
    "python",
    [
        pytest.param(
            each,
            id=f"{each.parent.parent.name}-{each.name}",
            marks=[pytest.mark.slow] if each in _OTHERS else [],
        )
        for each in PYTHONS
    ],
)


@dataclass
class Ended:
    """How a program ended, and what it wrote, but that its loop was held up."""

    status: int
    output: str
    log: str
    seconds: float


class Program:
    """A program that runs, with everything of the package imported.

    Args:
        text: What follows on the imports; or a file with all of it.
        arguments: Its `sys.argv[1:]`.
        python: By which Python.
    """

    def __init__(
        self, text: str | Path, *arguments: str, python: Path | None = None
    ) -> None:
        self._began = time.monotonic()
        python = python or Path(sys.executable)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if python != Path(sys.executable):
            environment["PYTHONPATH"] += os.pathsep + _packages()
        code = [str(text)] if isinstance(text, Path) else ["-c", PREFACE + text]
        self._process = subprocess.Popen(
            [str(python), *code, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it if it still runs; needed where a test may fail before `end`."""
        # To leave it closes its pipes, and waits.
        with self._process:
            self._process.kill()

    def wait_for_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def send(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)

    def end(self, within: float = 30.0) -> Ended:
        """Wait for its end; one that hangs is killed, and fails the test."""
        try:
            output, log = self._process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, log = self._process.communicate()
            pytest.fail(f"it hangs: {output!r}, {log!r}")
        finally:
            self.__exit__()
        seconds = time.monotonic() - self._began
        return Ended(self._process.returncode, output.strip(), told(log), seconds)


@cache
def _packages() -> str:
    """Return a folder of this run alone: one that is kept may lead to what is gone."""
    folder = Path(tempfile.mkdtemp(prefix="batchqueue-packages-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in _NEEDED:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (folder / source.name).symlink_to(source)
    return str(folder)
