"""A throw-away PgBouncer in front of a PostgreSQL server."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.ports import free_port
from tests.support.postgres import USER

PATIENCE = 20.0

CONFIG = """
[databases]
* = host={host} port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
"""


@contextmanager
def pooled(dsn: str, size: int) -> Iterator[str]:
    """Give the DSN of a pooler in transaction mode; skips where there is none.

    After each transaction another client may get the server's end of a connection.
    """
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("needs PgBouncer: no pgbouncer on this machine")
    server, port = urlsplit(dsn), free_port()
    config = CONFIG.format(
        host=server.hostname, server=server.port, user=USER, port=port, size=size
    )
    account = ["-u", USER] if os.geteuid() == 0 else []  # it refuses to run as root
    # Not pytest's folder, which that account can't read.
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write(config)
        file.flush()
        Path(file.name).chmod(0o644)
        running = subprocess.Popen(
            [program, "-q", *account, file.name], stderr=subprocess.DEVNULL
        )
        try:
            _wait(port, running)
            yield server._replace(netloc=f"{USER}@127.0.0.1:{port}").geturl()
        finally:
            running.kill()
            running.wait()


def _wait(port: int, running: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and running.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    msg = f"PgBouncer did not start: {running.poll()}"
    raise RuntimeError(msg)
