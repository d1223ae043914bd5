"""A driver program for other masters than the tests' own session: prints JSON.

Run: python -m tests.spark.executor.elsewhere MASTER FOLDER, with MASTER as Spark has
it, or `connect` for a Spark Connect server of its own.
"""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from batchqueue_async.spark.executor_queue import close_executor_queues
from batchqueue_async.spark.map_async import map_async
from batchqueue_async.spark.write_partitions import write_partitions
from tests.spark.calls.in_spark import Dying
from tests.spark.driver.over_connect import use_client_side
from tests.spark.executor.probes import FAULTY, PARQUET, OpenFileQueue
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def numbers(batch: object) -> list[int]:
    """The first column."""
    values: list[int] = batch.column(0).to_pylist()  # type: ignore[attr-defined]
    return values


def _use_own_port() -> int:
    """Return a port for this process's server of Spark Connect, where clients look.

    All such servers have one, and parts of the suite run at the same time.
    """
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415

    port = free_port()
    own = staticmethod(lambda: port)
    DefaultChannelBuilder.default_port = own  # type: ignore[method-assign]
    return port


def session(master: str) -> "SparkSession":
    """A session there, with little memory and no more than errors to say."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # slow

    from batchqueue_async.spark import ensure_java  # noqa: PLC0415
    from examples.spark_session import SETTINGS  # noqa: PLC0415

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import this module, and the server is one more process on the way to them.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    if master == "connect":
        # A builder would try to set them on the server, which is running by then.
        own_port = {"spark.connect.grpc.binding.port": str(_use_own_port())}
        wanted = {**SETTINGS, **own_port}
        settings = [f"--conf={name}={value}" for name, value in wanted.items()]
        arguments = shlex.join([*settings, "pyspark-shell"])
        os.environ["PYSPARK_SUBMIT_ARGS"] = arguments
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        # Else a task has one try there.
        return SparkSession.builder.remote("local[2,4]").getOrCreate()
    builder = SparkSession.builder.master(master)
    # Two executors, with less than `tests.support.cluster` offers.
    executors = {
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "500m",
    }
    for name, value in {**SETTINGS, **executors}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def write(frame: "DataFrame", sink: str, **options: object) -> None:
    """Write it through the data source."""
    made = frame.write.format("batchqueue").mode("append").option("sink", sink)
    for name, value in options.items():
        made = made.option(name, str(value))
    made.save()


def stream(spark: "SparkSession", home: Path, **options: object) -> None:
    """Write three micro-batches through the data source."""
    spark.range(0, 60, 1, 3).write.parquet(f"{home / 'in'}")
    source = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)
    made = source.parquet(f"{home / 'in'}").writeStream.format("batchqueue")
    for name, value in options.items():
        made = made.option(name, str(value))
    made = made.option("sink", PARQUET).option("checkpointLocation", f"{home / 'at'}")
    query = made.trigger(availableNow=True).start()
    query.awaitTermination(60)


def ids(spark: "SparkSession", folder: Path) -> list[int]:
    """What is published."""
    rows = spark.read.parquet(str(folder)).select("id").collect()
    return sorted(row.id for row in rows)


def main(master: str, folder: str) -> None:
    """Use each of the ways once, on a machine where a worker process is killed."""
    spark, home = session(master), Path(folder)
    frame = spark.range(0, 100, 1, 4)
    (home / "queue").mkdir()
    open_queue = OpenFileQueue(f"{home / 'queue'}")
    result = write_partitions(frame, open_queue, to_items=numbers)
    fault = {"fault": "sealed", "kill": "true", "marker": home / "marker"}
    write(frame, FAULTY, directory=home / "batch", partition=1, **fault)
    stream(spark, home, directory=home / "stream")
    dying = Dying(f"{home / 'died'}")
    mapped = map_async(frame, dying, "id BIGINT, y BIGINT", max_batch=5)
    answer = {
        "rows": result.rows,
        "handled": len(open_queue.handled()),
        "processes": open_queue.lines().count("opened"),
        "killed": (home / "marker").exists(),
        "batch": ids(spark, home / "batch"),
        "stream": ids(spark, home / "stream"),
        "mapped": [(row.id, row.y) for row in mapped.collect()],
        "died": (home / "died").exists(),
        "staged": [p.name for p in home.glob("*/_staged/**/*") if p.is_file()],
    }
    if master == "connect":
        answer["client"] = use_client_side(spark, home)
    close_executor_queues()
    spark.stop()
    print(json.dumps(answer))  # noqa: T201  # a program


if __name__ == "__main__":
    main(*sys.argv[1:])
