"""Makes `format("batchqueue")` known: Spark imports all modules named `pyspark_*`."""

from batchqueue_async.spark.data_source import BatchQueueSource as DefaultSource

__all__ = ["DefaultSource"]
