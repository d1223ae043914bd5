"""Real prefork servers: each row that a worker accepted is in PostgreSQL at the end."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bridge.programs import ROOT
from tests.bridge.test_process_queue import counted_table
from tests.support.ports import free_port
from tests.support.process_family import ProcessFamily

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

# What accepted a row notes it at once: also where an answer is lost on its way.
ROWS = """
import os

import asyncpg

from batchqueue_async import BatchQueueConfig, close_process_queues, process_queue

DSN, TABLE, ACCEPTED = (os.environ[each] for each in ("DSN", "TABLE", "ACCEPTED"))

class Rows:
    connection = None

    async def consume(self, batch):
        if self.connection is None:
            self.connection = await asyncpg.connect(DSN)
        await self.connection.copy_records_to_table(TABLE, records=batch)

    async def on_close(self):
        if self.connection is not None:
            await self.connection.close()

def open_rows(loop_thread):
    return loop_thread.open("rows", BatchQueueConfig(consumer=Rows(), linger=0.2))

def put():
    if process_queue(open_rows).produce((os.getpid(),)):
        file = os.open(ACCEPTED, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b"x")
        os.close(file)
        return True

# Of the parent, which forks while this waits, or is on its way.
put()
"""

WEB = """
def application(environ, start_response):
    status = "202 Accepted" if put() else "429 Too Many Requests"
    start_response(status, [("Content-Length", "0")])
    return []
"""

TASKS = """
from celery import Celery
from celery.signals import worker_process_shutdown

app = Celery("program", broker=os.environ["BROKER"])

@app.task
def store(number):
    put()

@worker_process_shutdown.connect
def close(**kwargs):
    close_process_queues()
"""


@contextmanager
def server(
    folder: Path, program: str, *command: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A server of this program, whose workers are gone at the end."""
    (folder / "program.py").write_text(program)
    family = ProcessFamily()
    path = os.pathsep.join([str(folder), str(ROOT)])
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            env={**family.environment(), "PYTHONPATH": path, **environment},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        family.end()
        process.wait(30)


def accepted(folder: Path) -> int:
    file = folder / "accepted"
    return file.stat().st_size if file.exists() else 0


def wait_until_accepted(
    folder: Path, count: int, process: subprocess.Popen[bytes]
) -> None:
    deadline = time.monotonic() + 90
    while accepted(folder) < count:
        assert process.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)


def request(port: int) -> int:
    """The answer's status; a worker that is being replaced may not answer."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()


@pytest.mark.parametrize("workers", ["sync", "gthread"])
def test_gunicorn_that_preloads_and_recycles(
    workers: str, postgres_dsn: str, tmp_path: Path
) -> None:
    pytest.importorskip("gunicorn")
    port, table = free_port(), f"gunicorn_{workers}"
    options = f"--preload -w 4 -k {workers} --threads 2 -b 127.0.0.1:{port}"
    recycling = "--max-requests 40 --max-requests-jitter 20 --log-level warning"
    command = ["gunicorn", *options.split(), *recycling.split(), "program:application"]
    with (
        counted_table(postgres_dsn, table) as count,
        server(
            tmp_path,
            ROWS + WEB,
            *command,
            DSN=postgres_dsn,
            TABLE=table,
            ACCEPTED=str(tmp_path / "accepted"),
        ) as process,
    ):
        with ThreadPoolExecutor(4) as clients:
            answers = list(clients.map(request, [port] * 600))
        assert set(answers) == {202}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "ERROR" not in (log := (tmp_path / "log").read_text()), log
        assert count() == accepted(tmp_path) >= 601, log


def test_celery_that_recycles_its_workers(
    redis_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    celery = pytest.importorskip("celery")
    options = "worker -c 4 --pool prefork --max-tasks-per-child 20 -l warning"
    command = ["celery", "-A", "program", *options.split()]
    with (
        counted_table(postgres_dsn, "celery") as count,
        server(
            tmp_path,
            ROWS + TASKS,
            *command,
            BROKER=redis_url,
            DSN=postgres_dsn,
            TABLE="celery",
            ACCEPTED=str(tmp_path / "accepted"),
        ) as process,
    ):
        with celery.Celery(broker=redis_url) as client:
            for number in range(300):
                client.send_task("program.store", (number,))
        wait_until_accepted(tmp_path, 301, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        log = (tmp_path / "log").read_text()
        assert "ERROR" not in log, log
        assert count() == accepted(tmp_path) == 301, log
