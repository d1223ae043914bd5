"""Runs tests with the lowest versions that `pyproject.toml` allows: `make lowest`.

    python -m tests.lowest [pytest arguments]

Nobody who develops has them, and a program whose other parts hold a version back has.
They go into `.venv-lowest`. Without Spark, whose wheel alone takes a minute.
"""

# ruff: noqa: T201  # a program prints

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.pythons import ROOT, prepare

EXTRAS = (
    "uvloop",
    "sqlite",
    "postgres",
    "parquet",
    "opentelemetry",
    "prometheus",
    "top",
)
# What the package and each extra do with what they depend on.
TESTS = (
    "tests/bridge/test_g_threads.py",
    "tests/bridge/test_loop_thread.py",
    "tests/bridge/test_loop_thread_forks.py",
    "tests/bridge/test_start_and_stop.py",
    "tests/engine/test_f_cancel_scopes.py",
    "tests/engine/test_in_thread.py",
    "tests/sinks/test_parquet.py",
    "tests/sinks/test_postgres.py",
    "tests/sinks/test_sqlite_staged.py",
    "tests/telemetry/test_opentelemetry.py",
    "tests/telemetry/test_prometheus.py",
    "tests/telemetry/test_top.py",
    "tests/telemetry/test_web_view.py",
)


def lowest() -> list[str]:
    """Return what the package, its extras and the tests need, at its lowest."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = read["project"]
    optional = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(each for name in EXTRAS for each in optional[name]),
    ]
    # It is of one release with the API.
    groups = read["dependency-groups"]["test-core"]
    wanted += [each for each in groups if each.startswith("opentelemetry-sdk")]
    return [_lowest(Requirement(each)) for each in wanted]


def _lowest(wanted: Requirement) -> str:
    (bound,) = (each for each in wanted.specifier if each.operator == ">=")
    return f"{wanted.name}=={bound.version}"


def main(arguments: list[str]) -> int:
    versions = lowest()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(versions))
        constraints.flush()
        wanted = [
            ("--constraint", constraints.name),
            ("--editable", f".[{','.join(EXTRAS)}]"),
            ("--group", "test-core"),
        ]
        inside = prepare(Path(sys.executable), ROOT / ".venv-lowest", wanted)
    print(f"With {', '.join(versions)}:", flush=True)
    command = (inside, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    chosen = arguments or TESTS
    return subprocess.run([*command, *chosen], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
