"""A WSGI application under a server that forks: each worker has a queue of its own.

`process_queue` opens it at a worker's first request, after the fork; what ends a worker
(SIGTERM, a reload, its last request) drains it.

    ROWS=rows.db gunicorn --preload --workers 4 examples.wsgi:application
    python -m examples.wsgi   # A proof, with a reload and SIGTERM in the traffic.
"""

import os
import signal
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from subprocess import Popen
from wsgiref.types import StartResponse, WSGIEnvironment

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    Offer,
    SyncBatchQueue,
    in_thread,
    process_queue,
)

STATUS = {
    Offer.ACCEPTED: "202 Accepted",
    Offer.FULL: "429 Too Many Requests",
    Offer.CLOSED: "503 Service Unavailable",
}


def store(paths: list[str]) -> None:
    rows = [(path, os.getpid()) for path in paths]
    # The workers write in turns, and wait for each other.
    with closing(sqlite3.connect(os.environ["ROWS"], timeout=30)) as database, database:
        database.executemany("INSERT INTO rows VALUES (?, ?)", rows)


def open_rows(loop_thread: LoopThread) -> SyncBatchQueue[str]:
    config = BatchQueueConfig(consumer=in_thread(store), max_batch=500, linger=0.2)
    return loop_thread.open("rows", config)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    offer = process_queue(open_rows).offer(environ["PATH_INFO"])
    start_response(STATUS[offer], [("Content-Length", "0")])
    return []


@contextmanager
def serving(database: Path) -> Iterator[tuple[int, Popen[bytes]]]:
    """Run it on a free port, and in the end have it stopped by SIGTERM."""
    gunicorn = "-m gunicorn --preload --workers=4 --max-requests=200 --log-level=error"
    environment = {**os.environ, "ROWS": str(database)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, fd = listener.getsockname()[1], listener.fileno()
        command = [sys.executable, *gunicorn.split(), f"--bind=fd://{fd}"]
        command += [f"--chdir={Path(__file__).parent}", "wsgi:application"]
        server = Popen(command, env=environment, pass_fds=[fd])
    try:
        yield port, server
    finally:
        server.terminate()
        server.wait()


def prove(database: Path, told: dict[str, bool]) -> None:
    """Send requests; note which were accepted, of those that got an answer."""

    def send(number: int) -> None:
        # Without an answer nobody knows whether it was accepted.
        with (
            suppress(OSError, HTTPException),
            closing(HTTPConnection("127.0.0.1", port)) as connection,
        ):
            connection.request("POST", f"/{number}")
            status = connection.getresponse().status
            told[f"/{number}"] = status == HTTPStatus.ACCEPTED

    with ThreadPoolExecutor(8) as clients, serving(database) as (port, server):
        sent = [clients.submit(send, number) for number in range(3000)]
        sent[800].result()
        server.send_signal(signal.SIGHUP)  # All workers are replaced.
        sent[1600].result()
        server.terminate()  # In the middle of the traffic.
    if server.returncode:
        sys.exit(f"the server ended by itself: {server.returncode}")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # As orderly as by Ctrl-C.
    told: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as directory:
        database = Path(directory, "rows.db")
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("CREATE TABLE rows (path, process)")
        try:
            prove(database, told)
        finally:
            with closing(sqlite3.connect(database)) as connection:
                rows = connection.execute("SELECT path, process FROM rows").fetchall()
            stored = {path for path, _ in rows}
            accepted = {path for path, is_accepted in told.items() if is_accepted}
            lost, twice = len(accepted - stored), len(rows) - len(stored)
            processes = {process for _, process in rows}
            print(f"{len(accepted)} accepted, stored by {len(processes)} workers")
            print(f"{lost} are lost, {twice} are there twice")
            if lost or twice:
                sys.exit("the account is wrong")


if __name__ == "__main__":
    main()
