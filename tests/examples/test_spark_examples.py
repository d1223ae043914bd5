"""Each example of a Spark way does what its docstring says."""

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.spark]

TOTALS = [f"/page/{page} {95_000 + 2_000 * page} ms" for page in range(5)]
WANTED = {
    "push": ["10000 views were handled", *TOTALS],
    "foreach_batch": [
        "after run 1 the table has 10000 rows",
        "after run 2 the table has 10000 rows",
    ],
    "write_partitions": ["10000 items in 4 partitions", "the table has 10000 rows"],
    "executor_queue": TOTALS,
    "map_partitions": TOTALS,
    "data_source": [
        "after write 1 the table has 10000 rows",
        "after write 2 the table has 10000 rows",
    ],
    "data_source_stream": [
        "after run 1 there are 10000 rows of 4 micro-batches",
        "after run 2 there are 10000 rows of 4 micro-batches",
    ],
}


# The tests of what the others use are quicker.
QUICK = {"push", "map_partitions"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in WANTED
    ],
)
def test_an_example_prints_what_it_promises(
    name: str,
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # It gets the tests' session, which others use, too.
    monkeypatch.setattr(spark, "stop", lambda: None)

    import_module(f"examples.spark.{name}").main()

    assert capsys.readouterr().out.splitlines() == WANTED[name]
