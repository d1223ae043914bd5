"""What `import batchqueue_async` adds to the start of a program.

Whole processes, whose modules' bytecode is cached, in turns: one that imports asyncio
and anyio, which programs have anyhow, and one that imports the package, too.
"""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial

from benchmarks.scale import Scale
from benchmarks.table import Column, Table
from benchmarks.turns import Turns

BEFORE = "import asyncio, anyio"
PACKAGE = "batchqueue_async"
IMPORTED = f"{BEFORE}, {PACKAGE}"
COUNTED = f"""\
import sys
{BEFORE}
before = set(sys.modules)
import {PACKAGE}
new = set(sys.modules) - before
print(len(new), sum(name.partition(".")[0] == "{PACKAGE}" for name in new))
"""
ROW = f"import {PACKAGE}"
BEYOND = "beyond the first"


def table(scale: Scale, turns: Turns) -> Table:
    """Measure both programs in turns, and count modules."""
    with tempfile.TemporaryDirectory() as cache:
        # A cache of its own: the checkout may not be writable.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # Compiles what is not cached.
        new, own = map(int, ran(COUNTED, environment).split())
        programs = {BEFORE: BEFORE, ROW: IMPORTED}
        samples = turns.take(
            {
                name: partial(seconds, code, environment)
                for name, code in programs.items()
            },
            rounds=scale.of(21, 3),
        )
    found = Table(
        "import",
        "Milliseconds from a process's start to its end, bytecode cached",
        [
            Column("program"),
            Column("process", "millis"),
            Column(BEYOND, "millis"),
            Column("modules", "count"),
            Column("... of the package", "count"),
            Column("spread", "percent"),
        ],
    )
    base, mine = samples[BEFORE], samples[ROW]
    beyond = mine.beyond(base)
    found.add(BEFORE, base.median, None, None, None, base.spread)
    found.add(ROW, mine.median, beyond, new, own, mine.spread)
    return found


def seconds(code: str, environment: dict[str, str]) -> float:
    """Return how long a process with this program takes."""
    started = time.perf_counter()
    ran(code, environment)
    return time.perf_counter() - started


def ran(code: str, environment: dict[str, str]) -> str:
    """Run a program to its end, and return what it printed."""
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout
