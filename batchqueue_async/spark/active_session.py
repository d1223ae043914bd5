"""Threads that use a session which was made on another thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_session(spark: SparkSession) -> None:
    """Make the calling thread one of the session's, unless it has another already.

    Spark looks for Python's data sources in the session that is active on the thread,
    and that is none but on the thread that made it: `format("batchqueue")` ends with
    DATA_SOURCE_NOT_FOUND on the others. Where `batchqueue_async.spark` is imported
    that format calls this by itself; any other of Python's needs it once per thread::

        ThreadPoolExecutor(4, initializer=use_session, initargs=(spark,))

    With Spark Connect there is nothing to do.

    Args:
        spark: The session.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    if not sessions.getActiveSession().isDefined():
        sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - no public way
