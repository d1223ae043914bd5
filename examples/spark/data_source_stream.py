"""A stream into Parquet files, each micro-batch exactly once; no row sees the driver.

Each micro-batch becomes a folder, by one rename. The second run has nothing to do: the
checkpoint says that all was read.

Run, in a clone: pip install -e . --group demo
python -m examples.spark.data_source_stream
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame

from examples.spark.page_views import page_view_files
from examples.spark_session import quiet_session


def main() -> None:
    spark = quiet_session("data_source_stream", "local[2]")
    with TemporaryDirectory() as home:
        stream = page_view_files(spark, Path(home, "in"))
        for run in (1, 2):
            deliver(stream, Path(home))
            epochs = len([*Path(home, "out").glob("batchqueue_epoch=*")])
            rows = spark.read.parquet(str(Path(home, "out"))).count()
            print(f"after run {run} there are {rows} rows of {epochs} micro-batches")
    spark.stop()


def deliver(stream: DataFrame, home: Path) -> None:
    query = (
        stream.writeStream.format("batchqueue")
        .option("sink", "parquet")
        .option("directory", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
