"""PySpark's commands run with nothing but this package's environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchqueue_async.spark.__main__ import main

pytestmark = [pytest.mark.real_time, pytest.mark.spark]


def test_a_java_and_this_python_are_found(tmp_path: Path) -> None:
    """In an environment that is not activated `spark-class` alone finds neither."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAVA", "PYSPARK", "SPARK"))
    }
    master = "org.apache.spark.deploy.master.Master"
    command = [sys.executable, "-m", "batchqueue_async.spark", "spark-class", master]

    done = subprocess.run(
        [*command, "--help"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Usage: Master [options]" in done.stderr + done.stdout
    assert "not found" not in done.stderr


def test_other_names_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark-clas"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("NAME must be one of spark-class, spark-")
    assert told.endswith(", got 'spark-clas'\n")
    assert main([]) == 2
