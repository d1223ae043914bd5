"""Arguments of earlier versions work for one more, and say what they are called."""

from pathlib import Path
from typing import Any

import pytest

from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink


def test_old_names_work_and_warn(tmp_path: Path) -> None:
    made: Any = PostgresEpochSink
    with pytest.warns(DeprecationWarning, match="dsn is called url now") as warned:
        made(dsn="postgresql://", table="t", columns=("id",))
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="patience is called timeout now"):
        made("postgresql://", "t", ("id",), patience=1.0)
    made = SqliteEpochSink
    with pytest.warns(DeprecationWarning, match="patience is called timeout now"):
        made(tmp_path / "db", "t", ("id",), patience=1.0)


def test_an_old_name_is_checked_as_the_new_one() -> None:
    made: Any = PostgresEpochSink
    with (
        pytest.warns(DeprecationWarning, match="version 0.3"),
        pytest.raises(ValueError, match="timeout must be > 0, got -1"),
    ):
        made("postgresql://", "t", ("id",), patience=-1)
    with (
        pytest.warns(DeprecationWarning, match="timeout"),
        pytest.raises(TypeError, match="timeout must be given once"),
    ):
        made("postgresql://", "t", ("id",), patience=1, timeout=1)
