"""Runs the suite on each Python that it is for and that is here: `make test-all`.

    python -m tests.every_python [--spark] [pytest arguments]

Each has an environment of its own, `.venv-3.12` and so on, made when first needed. The
tests that start a Java machine are most of an hour on three Pythons: `--spark` (or
SPARK=1) runs them, too. A Python that isn't here is named in the end.
"""

# ruff: noqa: T201  # a program prints

import os
import subprocess
import sys
from pathlib import Path

from tests.support.pythons import VERSIONS, find, prepare

ROOT = Path(__file__).parents[1]
# What needs PySpark to be imported.
OF_SPARK = (
    "tests/spark",
    "tests/spark/*",
    "tests/test_java_runtime.py",
    "tests/sinks/test_each_way.py",
    "tests/sinks/test_exact_values.py",
    "tests/examples/test_flights*",
    "tests/*/test_*spark*",
)
WITHOUT_SPARK = (
    *(f"--ignore-glob={each}" for each in OF_SPARK),
    "-m",
    "not spark and not slow",
)


def run(version: str, *, spark: bool, arguments: list[str]) -> str:
    """Run the suite on one Python; return what came of it."""
    python = find(version)
    if python is None:
        return "isn't here"
    wanted = [("--editable", ".[uvloop,sqlite,postgres,parquet]"), ("--group", "test")]
    if spark:
        wanted = [("--editable", "."), ("--group", "demo"), ("--group", "test")]
    name = f".venv-{version}" + ("-spark" if spark else "")
    inside = prepare(python, ROOT / name, wanted)
    if spark and not arguments:
        command: list[str | Path] = [inside, "-m", "tests"]
    else:
        chosen = () if spark else WITHOUT_SPARK
        command = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    done = subprocess.run([*command, *arguments], cwd=ROOT, check=False)
    return "passed" if done.returncode == 0 else f"failed, status {done.returncode}"


def main(arguments: list[str]) -> int:
    spark = bool(os.environ.get("SPARK"))
    if "--spark" in arguments:
        arguments.remove("--spark")
        spark = True
    results = {
        version: run(version, spark=spark, arguments=arguments) for version in VERSIONS
    }
    for version, result in results.items():
        print(f"Python {version}: {result}")
    if not spark:
        print("without the tests that need Spark; SPARK=1 runs them, too")
    return int(any(result.startswith("failed") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
