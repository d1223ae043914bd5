"""Makes `format("batchqueue")`, and sessions, known where Spark doesn't find them.

Spark looks for modules named `pyspark_*` once, in a Python process that sees what is
installed and what PYTHONPATH has, but neither `--py-files` nor a session's artifacts.
A registered source works with these, too. And Spark looks sources up in the session
that is active on the thread, which most threads don't have.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.errors import PySparkException
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

from .data_source import FORMAT, BatchQueueSource
from .frames import is_connect, require_running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_registered: WeakSet[object] = WeakSet()


def use_session(spark: SparkSession) -> None:
    """Make the calling thread one of the session's, unless it has another already.

    Spark looks for Python's data sources in the session that is active on the thread,
    and only the thread that made a session has one: on others `format("batchqueue")`
    ends with DATA_SOURCE_NOT_FOUND. Where `batchqueue_async.spark` is imported that
    format calls this by itself; any other Python data source needs it once per thread::

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


def register_source(spark: SparkSession) -> None:
    """Register the source in a session, unless Spark has found it; once.

    `spark.dataSource.register(BatchQueueSource)` is the same, with an error where the
    package is installed.
    """
    if spark in _registered:
        return
    try:
        spark.dataSource.register(BatchQueueSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    _registered.add(spark)


def register_when_wanted() -> None:
    """Let `format("batchqueue")` of a frame's writer make the source known first.

    Spark has no hook for this, neither before a session is made, when most programs
    import this package, nor when it is made. Connect's writers are not imported for
    this, as that takes gRPC: it works if its session is made first.
    """
    writers: list[Any] = [DataFrameWriter, DataStreamWriter]
    if "pyspark.sql.connect.session" in sys.modules:
        from pyspark.sql.connect.readwriter import (  # noqa: PLC0415  # needs grpcio
            DataFrameWriter as ConnectWriter,
        )
        from pyspark.sql.connect.streaming.readwriter import (  # noqa: PLC0415
            DataStreamWriter as ConnectStreamWriter,
        )

        writers += [ConnectWriter, ConnectStreamWriter]
    for writer in writers:
        if not hasattr(writer.format, "registers_batchqueue"):
            writer.format = _registering(writer.format)


def _registering(original: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @functools.wraps(original)
    def format(self: Any, source: str) -> Any:  # noqa: A001, ANN401 - Spark's names
        if str(source).lower() == FORMAT:
            session = getattr(self, "_spark", None)
            # Connect's writer of streams has the session under another name.
            session = self._session if session is None else session
            # Spark would only say that it doesn't find the source.
            if not is_connect(session):
                require_running(session)
            use_session(session)
            register_source(session)
        return original(self, source)

    format.registers_batchqueue = True  # type: ignore[attr-defined]
    return format
