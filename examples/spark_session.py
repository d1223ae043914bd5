"""A local Spark that starts fast and prints nothing but errors."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from batchqueue_async.spark.java import ensure_java

LOGGING = Path(__file__).with_name("log4j2.properties").resolve()

# For jobs of seconds, in which half of what the JVM's optimizing compiler and its
# concurrent garbage collector do at start would never pay off.
START_FAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
JAVA_OPTIONS = (*START_FAST, f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": " ".join(JAVA_OPTIONS),
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": " ".join(START_FAST),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def quiet_session(
    app_name: str,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a Spark session from this machine, or return the running one.

    Args:
        app_name: What Spark's pages call it.
        master: Where the executors are.
        settings: Spark's, on top of `SETTINGS`.

    Raises:
        JavaMissingError: There is no Java; the message says what to install.
    """
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
