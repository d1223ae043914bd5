"""One Spark session for all the tests that ask for it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.thorough import IS_THOROUGH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.python.daemon.module": "tests.support.python_daemon"}
# A few rows each: Java code would be generated and compiled for longer than it runs. In
# CI it is, as in a user's session.
FOR_FEW_ROWS = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A quiet local session; mark the tests with `spark` and `real_time`."""
    from examples.spark_session import quiet_session  # noqa: PLC0415  # slow

    settings = SETTINGS if IS_THOROUGH else {**SETTINGS, **FOR_FEW_ROWS}
    session = quiet_session("tests", master="local[2]", settings=settings)
    yield session
    session.stop()
