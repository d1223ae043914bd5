"""Starts Spark, and keeps it from talking."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import (  # type: ignore[import-untyped]
    Py4JError,
    Py4JJavaError,
    Py4JNetworkError,
)
from pyspark.logger import PySparkLogger

from examples.spark_session import quiet_session

from .data import InputFiles
from .problems import Problem
from .reading import open_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console


_ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def spark_session(
    console: Console, files: InputFiles, master: str
) -> Iterator[SparkSession]:
    """Run Spark, with the files as tables, while the `with` block runs."""
    # What goes wrong in Spark, and Ctrl-C, is told in one line by whoever catches it.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_no_interrupt)
    # Executors import what they run, from other working folders than this one.
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    path = os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with console.status("Starting Spark ..."):
        try:
            settings = {"spark.executorEnv.PYTHONPATH": path}
            spark = quiet_session("flights", master, settings)
        except Py4JJavaError as error:
            cause = error.java_exception.getMessage()
            msg = f"Spark does not start with --master {master}: {cause}"
            raise Problem(msg) from error
        spark.sparkContext.setLogLevel("OFF")
    try:
        open_tables(spark, files)
        console.print(f"Spark {spark.version} {_where(spark)} reads the files.\n")
        yield spark
    except (Py4JNetworkError, ConnectionError) as error:
        msg = "Spark's Java process has ended: start the same command again"
        raise Problem(msg) from error
    finally:
        # Where that has happened there is nothing to stop.
        with suppress(Py4JError, ConnectionError):
            spark.stop()


def is_one_process(spark: SparkSession) -> bool:
    """Tell whether executors live in the driver's JVM."""
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


def _where(spark: SparkSession) -> str:
    context = spark.sparkContext
    if is_one_process(spark):
        return f"on {context.defaultParallelism} cores"
    # How many cores there are turns out when executors have come.
    return f"at {context.master}"


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return "KeyboardInterrupt" not in record.getMessage()
