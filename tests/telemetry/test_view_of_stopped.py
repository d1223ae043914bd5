"""`batchqueue top` says so where the process is stopped before it has told anything."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async._command import main
from batchqueue_async.telemetry import _socket
from batchqueue_async.telemetry._socket import read_view

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no unix sockets"),
]


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """What a stopped process has: the system takes connections for it."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen(1)
        yield made


@pytest.mark.parametrize("options", [[], ["--once"], ["--web", "--port", "1"]])
def test_a_process_that_does_not_answer(
    listener: socket.socket,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(_socket, "_FIRST_SECONDS", 0.1)
    assert main(["top", listener.getsockname(), *options]) == 1
    assert "does not answer: it is stopped" in capsys.readouterr().err


def test_so_many_wait_for_it_that_nobody_else_may(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_socket, "_FIRST_SECONDS", 0.1)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    try:
        for each in waiting:
            each.settimeout(0)
            each.connect_ex(listener.getsockname())
        with pytest.raises(BatchQueueError, match="does not answer"):
            next(read_view(listener.getsockname()))
    finally:
        for each in waiting:
            each.close()


def test_who_has_told_something_may_pause(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_socket, "_FIRST_SECONDS", 0.2)
    goes_on = threading.Event()

    def tell() -> None:
        connection, _ = listener.accept()
        with connection:
            for number in range(2):
                connection.sendall(f"{json.dumps({'n': number})}\n".encode())
                goes_on.wait(60)

    teller = threading.Thread(target=tell)
    teller.start()
    samples = read_view(listener.getsockname())
    assert next(samples) == {"n": 0}
    threading.Timer(0.5, goes_on.set).start()
    assert [*samples] == [{"n": 1}]
    teller.join()
