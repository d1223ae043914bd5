"""One Spark session for all the tests that ask for it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.python.daemon.module": "tests.support.python_daemon"}


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A quiet local session; mark the tests with `spark` and `real_time`."""
    from examples.spark_session import quiet_session  # noqa: PLC0415  # slow

    session = quiet_session("tests", master="local[2]", settings=SETTINGS)
    yield session
    session.stop()
