"""A job to submit: it calls for each row, and writes the answers exactly once.

It prints where the driver and the executors found the package, as JSON, so that one
sees whether a cluster has what it needs. `docs/guides/spark_deployment.md` says how it
gets there: `spark-submit --py-files packages.zip job.py /shared/answers`, and others.
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, answer BIGINT, package STRING, python STRING"


async def ask(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stands for a call to a service, and says who makes it."""
    import batchqueue_async  # noqa: PLC0415  # on the executor

    return [
        {
            "id": item["id"],
            "answer": 2 * item["id"],
            "package": batchqueue_async.__file__,
            "python": sys.executable,
        }
        for item in batch
    ]


def run(spark: SparkSession, directory: str, rows: int = 1000) -> dict[str, Any]:
    """Do it; returns what came of it."""
    import batchqueue_async  # noqa: PLC0415  # over Connect it has just been added
    from batchqueue_async.spark import map_async  # noqa: PLC0415

    answers = map_async(spark.range(0, rows, 1, 4), ask, SCHEMA, max_batch=100)
    write = answers.write.format("batchqueue").mode("append")
    write.option("sink", "parquet").option("directory", directory).save()
    written = spark.read.parquet(directory)
    places = written.select("package", "python").distinct().collect()
    return {
        "rows": written.selectExpr("sum(answer)").collect()[0][0],
        "driver": batchqueue_async.__file__,
        "executors": sorted({row.package for row in places}),
        "pythons": sorted({row.python for row in places}),
    }


def over_connect(packages: str) -> SparkSession:
    """Return a session of Spark Connect, to whose server the packages are sent."""
    spark = SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).getOrCreate()
    spark.addArtifacts(packages, pyfile=True)
    sys.path.insert(0, packages)
    return spark


if __name__ == "__main__":
    if "SPARK_REMOTE" in os.environ:
        session = over_connect(sys.argv[2])
    else:
        session = SparkSession.builder.appName("answers").getOrCreate()
    print(json.dumps(run(session, sys.argv[1])))
    session.stop()
