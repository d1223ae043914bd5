"""Bytecode for the hundreds of Pythons that tests start."""

import os
import sys
from pathlib import Path


def keep() -> None:
    """Let what this process starts keep its bytecode, in this Python's environment.

    Containers often forbid to write any. Then each Python that a test starts compiles
    the package anew, which takes longer than most tests.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(sys.prefix, "bytecode")))
