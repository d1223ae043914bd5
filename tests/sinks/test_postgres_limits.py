"""How long a PostgreSQL server may take is checked when it is said."""

from typing import Any

import pytest

from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from tests.sinks.stores import COLUMNS


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "60", None, True])
@pytest.mark.parametrize("name", ["statement_timeout", "timeout"])
def test_limits_are_checked_when_they_are_given(wrong: Any, name: str) -> None:  # noqa: ANN401
    with pytest.raises((TypeError, ValueError), match=f"^{name} must be"):
        PostgresStagedSink("url", "t", **{name: wrong})
    with pytest.raises((TypeError, ValueError), match=f"^{name} must be"):
        PostgresEpochSink("url", "t", COLUMNS, **{name: wrong})


def milliseconds(sink: PostgresStagedSink) -> str:
    return sink._connections.milliseconds


def test_options_are_texts_of_numbers() -> None:
    options = {"url": "postgresql://", "table": "t", "statement_timeout": "60"}
    assert milliseconds(PostgresStagedSink.from_options(options)) == "60000"
    with pytest.raises(ValueError, match="statement_timeout must be a number of sec"):
        PostgresStagedSink.from_options({**options, "statement_timeout": "soon"})


def test_the_server_takes_no_limit_for_none() -> None:
    short, long = (
        PostgresStagedSink("url", "t", statement_timeout=seconds)
        for seconds in (0.000_1, 1e9)
    )
    assert milliseconds(short) == "1"
    assert int(milliseconds(long)) == 2**31 - 1
