"""Spark's Declarative Pipelines, with `format("batchqueue")` as a sink."""

import importlib.util
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.spark,
    pytest.mark.slow,  # Each run starts a JVM of its own.
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("grpc", "yaml", "pyspark.pipelines"))),
        reason="pipelines need pyspark[pipelines], 4.1 or newer",
    ),
]

SPEC = """name: shop
storage: file://{folder}/storage
libraries:
  - glob:
      include: flows/**
"""
FLOWS = """from pyspark import pipelines as dp
from batchqueue_async.spark import map_async

options = {{"sink": "sqlite", "file": "{folder}/sold.db", "table": "sold"}}
dp.create_sink("sold", "batchqueue", options)


async def numbered(batch):
    return [(row["id"] + 1000,) for row in batch]


incoming = spark.readStream.schema("id LONG").parquet("{folder}/in")
called = map_async(incoming, numbered, "id LONG")


@dp.append_flow(target="sold")
def as_it_is():
    return spark.readStream.schema("id LONG").parquet("{folder}/in")


@dp.append_flow(target="sold")
def by_calls():
    return called
"""


ONE_TRY = """configuration:
  spark.sql.pipelines.maxFlowRetryAttempts: "0"
"""
ONE_QUERY = """from pyspark import pipelines as dp

options = {{"sink": "sqlite", "file": "{folder}/sold.db", "table": "sold"}}
dp.create_sink("sold", "batchqueue", options | {{"query": "sold"}})


@dp.append_flow(target="sold")
def first():
    return spark.readStream.schema("id LONG").parquet("{folder}/in")


@dp.append_flow(target="sold")
def second():
    return spark.readStream.schema("id LONG").parquet("{folder}/in")
"""


def run(folder: Path, told: str = "") -> None:
    command = [sys.executable, "-m", "batchqueue_async.spark", "spark-pipelines", "run"]
    more = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | more,
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert (done.returncode == 0) is not bool(told), output[-3000:]
    assert told in output, output[-3000:]


def add(folder: Path, ids: range) -> None:
    table = pa.table({"id": pa.array(ids, pa.int64())})
    pq.write_table(table, folder / "in" / f"{ids.start}.parquet")


def make(folder: Path, flows: str) -> None:
    for name in ("in", "flows"):
        (folder / name).mkdir()
    (folder / "spark-pipeline.yml").write_text(SPEC.format(folder=folder))
    (folder / "flows" / "sold.py").write_text(flows.format(folder=folder))


def test_each_row_of_each_flow_is_written_once_from_run_to_run(tmp_path: Path) -> None:
    make(tmp_path, FLOWS)
    with closing(sqlite3.connect(tmp_path / "sold.db")) as database:
        database.execute("CREATE TABLE sold (id INTEGER)")
        add(tmp_path, range(50))
        run(tmp_path)
        add(tmp_path, range(50, 100))
        run(tmp_path)
        rows = [each for (each,) in database.execute("SELECT id FROM sold ORDER BY id")]
    assert rows == [*range(100), *range(1000, 1100)]


def test_two_flows_of_one_query_end_the_run_and_say_so(tmp_path: Path) -> None:
    """The second one's rows were skipped, and a warning was all that told."""
    make(tmp_path, ONE_QUERY)
    with (tmp_path / "spark-pipeline.yml").open("a") as spec:
        # It would start the flow anew, which changes nothing, and takes its time.
        spec.write(ONE_TRY)
    with closing(sqlite3.connect(tmp_path / "sold.db")) as database:
        database.execute("CREATE TABLE sold (id INTEGER)")
        add(tmp_path, range(50))
        run(tmp_path, told="query must be one stream's alone, got 'sold'")
        rows = [each for (each,) in database.execute("SELECT id FROM sold ORDER BY id")]
    assert rows == [*range(50)]
