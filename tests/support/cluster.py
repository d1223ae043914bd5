"""A standalone Spark cluster from the pip package: a master and its workers (Linux)."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from batchqueue_async.spark import ensure_java
from examples.spark_session import JAVA_OPTIONS
from tests.support.ports import free_port
from tests.support.process_family import ProcessFamily, kill, parent_of

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
DEPLOY = "org.apache.spark.deploy"
EXECUTOR = "CoarseGrainedExecutorBackend"
START_TIMEOUT = 60.0


class Cluster:
    """A master and `workers` worker daemons on loopback ports.

    `cores` is what each worker offers; it may be more than the machine has.
    """

    def __init__(self, home: Path, workers: int = 2, cores: int = 2) -> None:
        self.home = home
        self.family = ProcessFamily()
        self._cores = cores
        self._port = free_port()
        self._state_port = free_port()
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._workers = [f"worker-{n}" for n in range(workers)]

    @property
    def url(self) -> str:
        """What a driver takes as its master."""
        return f"spark://{HOST}:{self._port}"

    def start(self) -> None:
        """Start everything, and wait until the master knows all workers."""
        ports = ["--port", str(self._port), "--webui-port", str(self._state_port)]
        self._start_daemon("master", f"{DEPLOY}.master.Master", ports)
        # A worker started first retries after seconds only.
        self._wait_for(0)
        for name in self._workers:
            self.start_worker(name)
        self._wait_for(len(self._workers))

    def stop(self) -> None:
        """End every process of the cluster, executors and Python workers included."""
        self.family.end()
        for daemon in self._daemons.values():
            daemon.wait(10)

    def start_worker(self, name: str) -> None:
        """Start this worker daemon, new or again."""
        arguments = ["-c", str(self._cores), "-m", "600m", "--webui-port", "0"]
        work = ["-d", f"{self.home / name}", self.url]
        self._start_daemon(name, f"{DEPLOY}.worker.Worker", [*arguments, *work])

    def kill_worker(self, chance: random.Random) -> str:
        """SIGKILL one worker daemon, whose executors then end; returns its name."""
        name = chance.choice(self._workers)
        self._daemons[name].kill()
        self._daemons[name].wait(10)
        return name

    def kill_machine(self, chance: random.Random) -> str:
        """SIGKILL a worker daemon with its executors and their Python workers."""
        name = chance.choice(self._workers)
        daemon = self._daemons[name]
        # The daemon first: it would start another executor.
        members = [pid for pid in self.family.pids() if daemon.pid in _above(pid)]
        daemon.kill()
        for pid in members:
            kill(pid)
        daemon.wait(10)
        return name

    def executors(self) -> list[int]:
        """The pids of the executors' JVMs."""
        return self.family.pids("java", EXECUTOR)

    def python_workers(self) -> list[int]:
        """The pids of the executors' Python workers, without the daemons over them."""
        daemons = self.family.pids("pyspark.daemon")
        return [pid for pid in daemons if parent_of(pid) in daemons]

    def executor_of(self, python_worker: int) -> int | None:
        """The executor over a Python worker, through the daemon between them."""
        executors = self.executors()
        above = _above(python_worker)
        return next((pid for pid in above if pid in executors), None)

    def kill_executor(self, chance: random.Random) -> int | None:
        """SIGKILL an executor's JVM; None if there is none at the moment."""
        return _kill_one_of(self.executors(), chance)

    def kill_python_worker(self, chance: random.Random) -> int | None:
        """SIGKILL a Python worker; None if there is none at the moment."""
        return _kill_one_of(self.python_workers(), chance)

    def _start_daemon(self, name: str, main_class: str, arguments: list[str]) -> None:
        ensure_java()
        # Killed processes leave files behind: here they go with the cluster's folder.
        scratch = self.home / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = self.family.environment() | {
            "SPARK_DAEMON_JAVA_OPTS": " ".join(java_options(scratch)),
            "SPARK_LOCAL_DIRS": str(scratch),
            "TMPDIR": str(scratch),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOG_DIR": str(self.home),
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT), os.environ.get("PYTHONPATH", "")]
            ),
        }
        spark_class = Path(pyspark.__path__[0], "bin", "spark-class")
        with (self.home / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [str(spark_class), main_class, "--host", HOST, *arguments],
                env=environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for who started the cluster
            )

    def _wait_for(self, workers: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while self._alive_workers() < workers:
            if time.monotonic() > deadline:
                msg = f"no cluster of {workers} workers:\n{self._logs()}"
                raise RuntimeError(msg)
            time.sleep(0.1)

    def _alive_workers(self) -> int:
        """How many workers the master knows; -1 while it doesn't answer."""
        address = f"http://{HOST}:{self._state_port}/json/"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (urllib.error.URLError, OSError, ValueError):
            return -1

    def _logs(self) -> str:
        logs = sorted(self.home.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in logs)


def java_options(scratch: Path) -> list[str]:
    """What makes a JVM start fast, and keep its temporary files in a folder."""
    return [*JAVA_OPTIONS, f"-Djava.io.tmpdir={scratch}", "-XX:-UsePerfData"]


def _above(pid: int) -> list[int]:
    """The process and those over it, up to one that is gone, or the system's first."""
    family = [pid]
    while (parent := parent_of(family[-1])) is not None and parent > 1:
        family.append(parent)
    return family


def _kill_one_of(pids: list[int], chance: random.Random) -> int | None:
    chance.shuffle(pids)
    return next((pid for pid in pids if kill(pid)), None)


@contextmanager
def running_cluster(workers: int = 2, cores: int = 2) -> Iterator[Cluster]:
    """Run a cluster whose files and processes are gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
    cluster = Cluster(home, workers, cores)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(home, ignore_errors=True)
