"""Record batches of some of a frame's partitions, as the executors' JVMs make them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import RDD
from pyspark.serializers import NoOpSerializer

from .frame_schema import zoned_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PartitionBatches:
    """A frame of a classic session, which can be computed by parts.

    Spark's own `toArrow` takes the same way, for all partitions at once.

    Attributes:
        partitions: How many there are. To know it, Spark may run the stages before.

    Raises:
        PySparkException: A column is of a type that Arrow lacks.
    """

    def __init__(self, df: DataFrame) -> None:
        self._session = df.sparkSession
        self._schema = zoned_schema(df)
        self._rdd: RDD[Any] = RDD(
            _of_bytes(df), self._session.sparkContext, NoOpSerializer()
        )
        self.partitions: int = self._rdd.getNumPartitions()

    def fetch(self, partitions: Sequence[int]) -> list[bytes]:
        """Run a job; return the record batches of these partitions, in their order."""
        job: Any = _AsItIs(self._rdd)
        with _settings_for_tasks(self._session):
            return self._session.sparkContext.runJob(job, iter, partitions)

    def unpack(self, packed: bytes) -> pa.RecordBatch:
        """Return what was fetched as a record batch."""
        return pa.ipc.read_record_batch(pa.py_buffer(packed), self._schema)


def _of_bytes(df: Any) -> Any:  # noqa: ANN401 - of Spark's JVM, untyped
    return df._jdf.toArrowBatchRdd().toJavaRDD()  # noqa: SLF001 - there is no other way


@contextmanager
def _settings_for_tasks(session: SparkSession) -> Iterator[None]:
    """Send a session's settings with the jobs of this thread.

    Spark does so for a whole frame, but not for its parts; some functions read them
    where they run.
    """
    context, settings = session.sparkContext, session.conf.getAll
    ours = {key: it for key, it in settings.items() if key.startswith("spark.sql.")}
    before: dict[str, Any] = {key: context.getLocalProperty(key) for key in ours}
    try:
        for key, value in ours.items():
            context.setLocalProperty(key, value)
        yield
    finally:
        for key, earlier in before.items():
            context.setLocalProperty(key, earlier)


class _AsItIs:
    """What `runJob` takes for an RDD; spares each task the way through Python."""

    def __init__(self, rdd: RDD[Any]) -> None:
        self._rdd = rdd

    def mapPartitions(self, _: object) -> RDD[Any]:  # noqa: N802  # Spark's name
        return self._rdd
