"""Makes `format("batchqueue")`, and sessions, known where Spark doesn't find them.

Spark looks for modules named `pyspark_*` once, in a Python process that sees what is
installed and what PYTHONPATH has, but neither `--py-files` nor a session's artifacts.
A registered source works with these, too. And Spark looks sources up in the session
that is active on the thread, which most threads don't have, and which may be another
than the frame's.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceRegistration
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
    _register(spark.dataSource)
    _registered.add(spark)


def _register(registration: Any) -> None:  # noqa: ANN401 - of two classes
    try:
        registration.register(BatchQueueSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _register_where_spark_looks(spark: SparkSession) -> None:
    """Register the source for a frame of a classic session, on the thread that writes.

    Spark asks the session that is active there whether there is such a source, and the
    frame's own for what it is.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    active, own = sessions.getActiveSession().get(), spark._jsparkSession  # noqa: SLF001
    try:
        for session in (active, own):
            # Before it registers one, Spark asks the active session, too.
            sessions.setActiveSession(session)
            if not _has_source(session):
                like_it = SimpleNamespace(
                    sparkContext=spark.sparkContext, _jsparkSession=session
                )
                _register(DataSourceRegistration(like_it))  # type: ignore[arg-type]
    finally:
        sessions.setActiveSession(active)


def _has_source(in_jvm: Any) -> bool:  # noqa: ANN401 - Py4J's
    try:
        manager = in_jvm.sessionState().dataSourceManager()
        return bool(manager.dataSourceExists(FORMAT))
    except Py4JError:  # another version of Spark may have no such method
        return False


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
            if is_connect(session):
                register_source(session)
            else:
                require_running(session)
                use_session(session)
                _register_where_spark_looks(session)
        return original(self, source)

    format.registers_batchqueue = True  # type: ignore[attr-defined]
    return format
