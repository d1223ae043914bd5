"""Where an extra is not installed, what needs it says which one."""

import subprocess
import sys

import pytest

NEEDS = {
    "from batchqueue_async.telemetry import instrument": ("opentelemetry", ""),
    "from batchqueue_async.telemetry import with_links": ("opentelemetry", ""),
    "from batchqueue_async.telemetry import PrometheusCollector": (
        "prometheus_client",
        "prometheus",
    ),
    "import batchqueue_async.sinks.postgres": ("asyncpg", "postgres"),
    "import batchqueue_async.sinks.postgres_staged": ("pyarrow", "spark,postgres"),
    "import batchqueue_async.sinks.parquet": ("pyarrow", "parquet"),
    "import batchqueue_async.sinks.parquet_staged": ("pyarrow", "parquet"),
    "import batchqueue_async.spark": ("pyspark", "spark"),
    "import pyspark_batchqueue": ("pyarrow", "spark"),
}


@pytest.mark.parametrize("statement", NEEDS)
def test_the_error_names_the_extra(statement: str) -> None:
    package, extra = NEEDS[statement]
    code = f"import sys; sys.modules[{package!r}] = None\n{statement}"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    install = f"pip install 'batchqueue-async[{extra or package}]'"
    assert last.endswith(f" needs {package}: {install}")


def test_what_needs_no_extra_is_there_without_any() -> None:
    """Also the sinks of SQLite, and the socket of the live view."""
    packages = {each for each, _ in NEEDS.values()} | {"aiosqlite", "rich", "uvicorn"}
    code = f"""
import sys
sys.modules |= dict.fromkeys({sorted(packages)})
import batchqueue_async.logging
import batchqueue_async.ring
import batchqueue_async.simulation
import batchqueue_async.sinks.sqlite
import batchqueue_async.sinks.sqlite_staged
import batchqueue_async.testing
from batchqueue_async._command import main
from batchqueue_async.telemetry import open_view, web_view
"""
    subprocess.run([sys.executable, "-c", code], check=True)
