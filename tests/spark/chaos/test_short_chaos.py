"""A few kills on a real cluster; `make chaos` is the long version."""

import random
import sys

import pytest

from tests.spark.chaos.campaign import Part, run
from tests.spark.chaos.faults import Fault
from tests.spark.chaos.report import HEAD, line
from tests.support.cluster import Cluster
from tests.support.postgres import find_binaries

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_time,
    pytest.mark.timeout(230),
    pytest.mark.skipif(find_binaries() is None, reason="needs PostgreSQL's binaries"),
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]

# One core, where that will do, is one executor, which is seconds less.
PARTS = [
    Part(
        "foreachBatch",
        "rate",
        [Fault("driver", "while committing")],
        starts=[(1, 2), (2, 3)],
    ),
    Part(
        "data source",
        "files",
        [Fault("Python worker", "while staging"), Fault("executor", "staged")],
        starts=[(1, 2)],
    ),
]


def test_three_kills_lose_and_double_nothing(cluster: Cluster) -> None:
    seed = random.randrange(1000)
    outcomes = list(run(PARTS, seed, tell=print, cluster=cluster))
    table = [HEAD, *(line(n, each) for n, each in enumerate(outcomes, 1))]
    assert all(each.is_clean for each in outcomes), "\n".join(table)
    assert len(outcomes) == 3
    assert outcomes[0].restarts > 0
