"""Starts Spark, and keeps it from talking."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.logger import PySparkLogger

from examples.spark_session import quiet_session

from .data import InputFiles
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
    logging.getLogger().addFilter(_is_no_interrupt)
    # What executors run, they import; their working folders are others.
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with console.status("Starting Spark ..."):
        spark = quiet_session("flights", master)
        spark.sparkContext.setLogLevel("OFF")
    try:
        open_tables(spark, files)
        cores = spark.sparkContext.defaultParallelism
        console.print(f"Spark {spark.version} on {cores} cores reads the files.\n")
        yield spark
    finally:
        spark.stop()


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return "KeyboardInterrupt" not in record.getMessage()
