"""Checks that all public names have a known type: `python -m tests.verify_types`.

mypy asks that the library is annotated; a user's checker must also not have to guess.
Those of the modules without an underscore are counted, re-exported or not.
"""

# ruff: noqa: T201  # a program prints

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
COMMAND = [
    *(sys.executable, "-m", "pyright"),
    *("--verifytypes", "batchqueue_async", "--ignoreexternal", "--outputjson"),
]


def report() -> dict[str, Any]:
    """What pyright says of the package that this Python imports."""
    # It looks for the package where the first `python` of the path would.
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(
        COMMAND, stdout=subprocess.PIPE, env=environment, check=False, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    return found


def main() -> int:
    """Return 1 if a name's type is not known."""
    found = report()
    counts = found["exportedSymbolCounts"]
    for symbol in found["symbols"]:
        for each in symbol["diagnostics"] if symbol["isExported"] else ():
            print(f"{symbol['name']}: {each['message']}")
    known = counts["withKnownType"]
    print(f"{known} of {sum(counts.values())} public names have a known type")
    # None at all: the package was not found.
    return 0 if known == sum(counts.values()) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
