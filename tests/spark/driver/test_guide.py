"""The code of the guides runs, in the shared session."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.spark import flushed_queue
from tests.support.ask_postgres import ask

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
# The address of a server in the blocks that need one; no other block does.
SERVER = "postgresql://database/shop"
# What the guide has imported by then.
EARLIER = {
    "BatchQueueConfig": BatchQueueConfig,
    "LoopThread": LoopThread,
    "flushed_queue": flushed_queue,
}


@pytest.mark.parametrize(
    # What the slow ones show has tests of its own.
    "name",
    [
        pytest.param("spark", marks=pytest.mark.slow),
        pytest.param("spark_calls", marks=pytest.mark.slow),
        pytest.param("spark_executors", marks=pytest.mark.slow),
        pytest.param("spark_streams", marks=pytest.mark.slow),
        "spark_types",
    ],
)
def test_the_code_of_the_guide_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    guide = GUIDES / f"{name}.md"
    text = guide.read_text("utf-8")
    # Spark resolves relative paths in a JVM that doesn't follow `chdir`.
    text = re.sub(r'"(incoming|checkpoint)"', rf'"{tmp_path}/\1"', text)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "guide", "spark": spark}

    for source, code in blocks(guide, text):
        if SERVER not in source:
            exec(code, namespace)


def test_the_asynchronous_client_of_the_guide_writes(
    spark: SparkSession, postgres_dsn: str
) -> None:
    guide = GUIDES / "spark_executors.md"
    text = guide.read_text("utf-8")
    text = text.replace(SERVER, postgres_dsn)
    (code,) = (code for source, code in blocks(guide, text) if postgres_dsn in source)
    euros = spark.range(100, numPartitions=2).selectExpr("'x' AS shop", "id AS euros")
    ask(postgres_dsn, "CREATE TABLE sold (shop TEXT, euros BIGINT)")

    try:
        exec(code, {"__name__": "guide", "euros": euros, **EARLIER})
        query = "SELECT COUNT(*), COUNT(DISTINCT euros) FROM sold"
        (row,) = ask(postgres_dsn, query)
    finally:
        ask(postgres_dsn, "DROP TABLE sold")

    # Both ways, of each process and of each task, wrote all of it.
    assert tuple(row) == (200, 100)


def blocks(guide: Path, text: str) -> Iterator[tuple[str, CodeType]]:
    """Yield each block's source, with the code compiled from it."""
    for block in re.finditer(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        source = "\n" * text[: block.start(1)].count("\n") + block[1]
        yield source, compile(source, str(guide), "exec")
