"""A job reaches clusters that know nothing of this package, as the guide says."""

import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import Any

import pytest

from examples.spark_session import SETTINGS
from tests.spark.deploy.bare import (
    ROOT,
    bare_environment,
    clone_is_hidden,
    environment_of,
    packages_folder,
    packages_zip,
)

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.spark,
    pytest.mark.slow,  # Each starts JVMs of its own.
    pytest.mark.timeout(600),
]

JOB = ROOT / "examples" / "deploy" / "job.py"
SUM = 999_000
"""Of twice the numbers below 1,000."""


class Cluster:
    """Where jobs are submitted to."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.python = bare_environment(home / "bare")
        self.environment = environment_of(self.python)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
        subprocess.run([*build, "-d", str(home)], cwd=ROOT, check=True)
        (self.wheel,) = home.glob("*.whl")

    def submitted(self, *options: str, **environment: str) -> dict[str, Any]:
        """Submit the job; returns what it prints."""
        settings = [f"--conf={name}={value}" for name, value in SETTINGS.items()]
        spark_submit = f"{self.environment['SPARK_HOME']}/bin/spark-submit"
        job = [str(JOB), str(self.home / "answers")]
        return self.ran([spark_submit, *settings, *options, *job], environment)

    def ran(self, command: list[str], environment: dict[str, str]) -> dict[str, Any]:
        """Run the job; returns what it prints."""
        shutil.rmtree(self.home / "answers", ignore_errors=True)
        done = subprocess.run(
            command,
            env=self.environment | environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    assert clone_is_hidden(made.python, made.environment, made.home)
    return made


def test_py_files_bring_both_packages(cluster: Cluster) -> None:
    packages = packages_zip(cluster.wheel, cluster.home)

    separate = "--master=local-cluster[1,1,600]", "--conf=spark.executor.memory=500m"
    answer = cluster.submitted(*separate, f"--py-files={packages}")

    assert answer["rows"] == SUM
    for place in (answer["driver"], *answer["executors"]):
        assert place.endswith("packages.zip/batchqueue_async/__init__.py")


def test_an_archive_brings_executors_their_python(cluster: Cluster) -> None:
    packed = packed_environment(cluster)

    answer = cluster.submitted(
        "--master=local-cluster[1,1,600]",
        "--conf=spark.executor.memory=500m",
        f"--archives={packed}#environment",
        # The job runs where the environment was made, which is there unpacked.
        PYSPARK_DRIVER_PYTHON="./environment/bin/python",
        PYSPARK_PYTHON="./environment/bin/python",
    )

    assert answer["rows"] == SUM
    assert answer["driver"].startswith(str(cluster.home / "environment"))
    (package,) = answer["executors"]
    assert package.startswith(f"{cluster.environment['SPARK_HOME']}/work/")
    assert "/environment/lib/" in package


def packed_environment(cluster: Cluster) -> Path:
    """Pack an environment that has the package, as venv-pack does it.

    What Spark itself needs is linked, so that the archive has kilobytes.
    """
    home = cluster.home / "environment"
    venv.create(home, symlinks=True)
    (library,) = home.glob("lib/python3.*/site-packages")
    shutil.copytree(
        packages_folder(cluster.wheel, cluster.home), library, dirs_exist_ok=True
    )
    (others,) = cluster.python.parents[1].glob("lib/python3.*/site-packages")
    (library / "others.pth").write_text(str(others))
    packed = cluster.home / "environment.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        for each in home.iterdir():
            archive.add(each, each.name)
    return packed


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("grpc", "grpc_status", "zstandard"))),
    reason="needs the packages of Spark Connect: pip install 'pyspark[connect]'",
)
def test_over_connect_a_session_brings_its_packages(cluster: Cluster) -> None:
    packages = packages_zip(cluster.wheel, cluster.home)
    command = [str(cluster.python), str(JOB), str(cluster.home / "answers")]

    answer = cluster.ran([*command, str(packages)], {"SPARK_REMOTE": "local[2]"})

    assert answer["rows"] == SUM
    assert answer["driver"].startswith(str(packages))
    assert all("packages.zip" in place for place in answer["executors"])
