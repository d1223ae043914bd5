"""Threads that use a session which was made on another thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "batchqueue"


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


def find_format_on_all_threads() -> None:
    """Let `format("batchqueue")` be found on threads without an active session.

    There is nothing of Spark's to hook into: what it looks up is Java's thread's own.
    So both classic writers' `format` calls `use_session` first, for this format alone.
    """
    for writer in (DataFrameWriter, DataStreamWriter):
        if not hasattr(writer.format, "finds_batchqueue"):
            setattr(writer, "format", _finding(writer.format))  # noqa: B010 - mypy


def _finding(original: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @functools.wraps(original)
    def format(self: Any, source: str) -> Any:  # noqa: A001, ANN401 - Spark's names
        if str(source).lower() == FORMAT:
            use_session(self._spark)
        return original(self, source)

    format.finds_batchqueue = True  # type: ignore[attr-defined]
    return format
