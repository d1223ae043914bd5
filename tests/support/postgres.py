"""A throw-away PostgreSQL server for the tests that want a real one."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port

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


class Server:
    """A PostgreSQL server on a free loopback port, its files in a new folder."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._home = Path(tempfile.mkdtemp(prefix="postgres-for-tests-"))
        self._port = free_port()
        self.dsn = f"postgresql://{USER}@127.0.0.1:{self._port}/postgres"

    def create(self) -> None:
        """Make the empty database."""
        if os.geteuid() == 0:
            _ensure_account()
            shutil.chown(self._home, USER)
        options = ["-A", "trust", "-U", USER, "-E", "UTF8", "--no-sync"]
        data = ["-D", f"{self._home}/data"]
        _run([f"{self._binaries}/initdb", *data, *options], self._home)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        settings = (
            f"-p {self._port} -k {self._home} -c listen_addresses=127.0.0.1"
            " -c fsync=off"
        )
        self._control("-l", f"{self._home}/log", "-o", settings, "start")

    def stop(self) -> None:
        """Stop it as a crash would: nobody is waited for, nothing is tidied up."""
        self._control("-m", "immediate", "stop")

    def remove(self) -> None:
        """Delete its files."""
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        """Whether there is a server to stop."""
        return (self._home / "data" / "postmaster.pid").exists()

    def _control(self, *arguments: str) -> None:
        data = ["-D", f"{self._home}/data", "-w"]
        _run([f"{self._binaries}/pg_ctl", *data, *arguments], self._home)


@contextmanager
def server(binaries: Path) -> Iterator[Server]:
    """Start a new server, which may be stopped and started; remove it at the end."""
    made = Server(binaries)
    try:
        made.create()
        made.start()
        yield made
    finally:
        try:
            if made.is_running:
                made.stop()
        finally:
            made.remove()


@contextmanager
def running_server(binaries: Path) -> Iterator[str]:
    """Start a new server, and give its DSN; stop and remove it at the end."""
    with server(binaries) as made:
        yield made.dsn


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
