"""A throw-away PostgreSQL server for the tests that want a real one."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "postgres"


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """The DSN of an empty server of this session; skips where there are no binaries."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL: no initdb and pg_ctl on this machine")
    with running_server(binaries) as dsn:
        yield dsn


def find_binaries() -> Path | None:
    """The folder that holds `initdb` and `pg_ctl`, or None."""
    # Debian keeps them out of PATH, one folder per version.
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda folder: [int(part) for part in folder.parent.name.split(".")],
        reverse=True,
    )
    if (in_path := shutil.which("pg_ctl")) is not None:
        folders.insert(0, Path(in_path).resolve().parent)
    if (config := shutil.which("pg_config")) is not None:
        asked = subprocess.run(
            [config, "--bindir"], capture_output=True, text=True, check=False
        )
        folders.append(Path(asked.stdout.strip()))
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    return None


@contextmanager
def running_server(binaries: Path) -> Iterator[str]:
    """Start a new cluster on a free loopback port; stop and remove it at the end."""
    home = Path(tempfile.mkdtemp(prefix="postgres-for-tests-"))
    if os.geteuid() == 0:
        _ensure_account()
        shutil.chown(home, USER)
    data, port = home / "data", _free_port()
    settings = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [f"{binaries}/pg_ctl", "-D", f"{data}", "-w"]
    try:
        options = ["-A", "trust", "-U", USER, "-E", "UTF8", "--no-sync"]
        _run([f"{binaries}/initdb", "-D", f"{data}", *options], home)
        log = ["-l", f"{home}/log", "-o", settings]
        _run([*control, *log, "start"], home)
        try:
            yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        finally:
            _run([*control, "-m", "immediate", "stop"], home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _run(command: list[str], home: Path) -> None:
    account = USER if os.geteuid() == 0 else None  # it refuses to run as root
    # A file, not a pipe: the server inherits it and would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command,
            cwd=home,
            env={**os.environ, "LC_ALL": "C", "HOME": str(home)},
            user=account,
            group=account,
            extra_groups=[] if account else None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        if done.returncode:
            output.seek(0)
            message = f"{command[0]} failed: {output.read().decode(errors='replace')}"
            raise RuntimeError(message)


def _ensure_account() -> None:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        pytest.skip(f"needs PostgreSQL: it can't run as root, and no user {USER!r}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
