"""The same on a standalone cluster, where a worker process dies, and over Connect."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.spark,
    pytest.mark.slow,  # Each starts JVMs of its own.
    pytest.mark.timeout(300),
]

WANTED = {
    "rows": 100,
    "handled": 100,
    "batch": list(range(100)),
    "stream": list(range(60)),
    "staged": [],
    "mapped": [[n, n * 10] for n in range(100)],
}


def run(master: str, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Run the program there and return what it prints."""
    command = [sys.executable, "-m", "tests.spark.executor.elsewhere"]
    done = subprocess.run(
        [*command, master, str(folder)],
        env=environment,
        timeout=250,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_on_a_standalone_cluster_a_killed_worker_process_changes_nothing(
    tmp_path: Path, cluster: Cluster
) -> None:
    answer = run(cluster.url, tmp_path, cluster.family.environment())

    assert answer.pop("killed")
    assert answer.pop("died")
    assert 1 <= answer.pop("processes") <= 3
    assert answer == WANTED


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("grpc", "grpc_status", "zstandard"))),
    reason="needs the packages of Spark Connect: pip install 'pyspark[connect]'",
)
def test_over_spark_connect_all_of_it_works(tmp_path: Path) -> None:
    answer = run("connect", tmp_path, dict(os.environ))

    assert answer.pop("killed")
    assert answer.pop("died")
    assert 1 <= answer.pop("processes") <= 3
    client = answer.pop("client")
    assert answer == WANTED
    assert "a ForeachBatchSink cannot leave its process" in client.pop("refused")
    assert client == {
        "columns": [1000, 1000],
        "types": ["int64", "timestamp[us, tz=UTC]"],
        "pushed": 1000,
        "handled": [[n, n] for n in range(1000)],
        "failed": 1000,
        "events": ["started", "progress", "terminated"],
        "seen": {"somewhere (executors)": 1000, "query counted": 60},
    }
