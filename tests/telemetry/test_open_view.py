"""`open_view` and `batchqueue top`: this user's processes may look, and nobody else."""

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async import BatchQueueConfig, BatchQueueError, LoopThread
from batchqueue_async._command import main
from batchqueue_async.telemetry import open_view
from batchqueue_async.telemetry._feed import Feed, Sample
from batchqueue_async.telemetry._socket import OpenView, SocketFeed, read_view

pytestmark = pytest.mark.real_time

PATIENCE = 60.0
"""Seconds, far longer than it takes."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.sock"


def test_another_process_sees_the_queues(path: Path) -> None:
    with LoopThread() as loop_thread, open_view(loop_thread, path, interval=0.05):
        queue = loop_thread.open("orders", BatchQueueConfig[int](consumer=len))
        queue.produce_many(range(1_234))
        queue.flush(30)
        done = subprocess.run(
            [sys.executable, "-m", "batchqueue_async", "top", path, "--once"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "COLUMNS": "120"},
        )
    assert "orders" in done.stdout
    assert "1,234" in done.stdout
    assert not path.exists()


def test_whoever_reads_what_it_prints_may_have_enough() -> None:
    """As `head` has, after some lines."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "batchqueue_async", "alerts"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_names_and_bars_that_the_terminal_has_no_characters_for(path: Path) -> None:
    with LoopThread() as loop_thread, open_view(loop_thread, path, interval=0.05):
        loop_thread.open("caf\u00e9 \u2603", BatchQueueConfig[int](consumer=len))
        done = subprocess.run(
            [sys.executable, "-m", "batchqueue_async", "top", path, "--once"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "ascii"},
        )
    assert "caf? ?" in done.stdout


def test_only_its_owner_may_connect(path: Path) -> None:
    with LoopThread() as loop_thread, open_view(loop_thread, path) as view:
        assert view.path == path
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == stat.S_IRUSR | stat.S_IWUSR
        # Nothing else was left beside it.
        assert list(path.parent.iterdir()) == [path]


def test_what_a_dead_process_left_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with LoopThread() as loop_thread, open_view(loop_thread, path):
        assert next(read_view(path))["queues"] == []


def test_a_living_one_is_left_alone_and_so_is_a_file(path: Path) -> None:
    with LoopThread() as loop_thread:
        with open_view(loop_thread, path):
            with pytest.raises(BatchQueueError, match="a process serves at"):
                open_view(loop_thread, path)
            assert next(read_view(path))["queue_count"] == 0
        path.write_text("precious")
        with pytest.raises(BatchQueueError, match="path must be free or a socket's"):
            open_view(loop_thread, path)
        assert path.read_text() == "precious"


@pytest.mark.parametrize("left_behind, step", [(0, 1), (1, 1), (1, 2)])
def test_of_two_at_once_one_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, left_behind: int, step: int
) -> None:
    """The other opens after this one has looked, and before it serves."""
    if left_behind:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            dead.bind(os.fspath(path))
    made, steps = tempfile.TemporaryDirectory, 0
    others: list[OpenView] = []

    def makes(**keywords: Any) -> Any:  # noqa: ANN401
        nonlocal steps
        steps += 1
        if steps == step:
            others.append(open_view(loop_thread, path))
        return made(**keywords)

    with LoopThread() as loop_thread:
        monkeypatch.setattr(tempfile, "TemporaryDirectory", makes)
        with pytest.raises(BatchQueueError, match="a process serves at"):
            open_view(loop_thread, path)
        (other,) = others
        samples = read_view(path)
        assert next(samples)["queues"] == []
        samples.close()  # type: ignore[attr-defined]
        other.close()
    assert list(path.parent.iterdir()) == []


def test_closing_removes_no_socket_but_its_own(path: Path) -> None:
    with LoopThread() as loop_thread:
        first = open_view(loop_thread, path)
        # As who tidies up a folder for temporary files does.
        path.unlink()
        with open_view(loop_thread, path):
            first.close()
            assert next(read_view(path))["queue_count"] == 0


def test_closing_after_a_change_of_directory_removes_the_socket_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    precious = elsewhere / path.name
    precious.write_text("precious")
    monkeypatch.chdir(path.parent)
    with LoopThread() as loop_thread, open_view(loop_thread, path.name):
        monkeypatch.chdir(elsewhere)
    assert precious.read_text() == "precious"
    assert not path.exists()


def test_a_path_at_which_nobody_could_connect_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Short enough to be bound in, whatever the folder.
    monkeypatch.chdir(path.parent)
    with LoopThread() as loop_thread, pytest.raises(OSError, match="too long"):
        open_view(loop_thread, "q" * 120)
    assert list(path.parent.iterdir()) == []


def test_viewers_end_with_it(path: Path) -> None:
    with LoopThread() as loop_thread:
        view = open_view(loop_thread, path, interval=0.05)
        samples = read_view(path)
        next(samples)
        view.close()
        view.close()
        # What was under way still comes.
        assert len(list(samples)) < 10


def test_the_last_sample_is_of_the_end(path: Path) -> None:
    with LoopThread() as loop_thread:
        queue = loop_thread.open("orders", BatchQueueConfig[int](consumer=len))
        view = open_view(loop_thread, path, interval=1000.0)
        samples = read_view(path)
        assert next(samples)["queues"][0]["handled"] == 0
        queue.produce_many(range(1_234))
        queue.flush(30)
        view.close()
        (last,) = samples
    assert last["queues"][0]["handled"] == 1_234


def test_a_page_that_is_loaded_again_keeps_its_curves(path: Path) -> None:
    with LoopThread() as loop_thread:
        loop_thread.open("orders", BatchQueueConfig[int](consumer=len))
        with open_view(loop_thread, path, interval=0.02):
            feed = SocketFeed(path)
            first = feed.sample()["time"]
            while len(feed.history()) < 5:
                threading.Event().wait(0.01)
            assert feed.history()[0]["time"] == first
            assert feed.history()[0]["queues"][0]["name"] == "orders"
        while "ended" not in feed.sample():
            threading.Event().wait(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_viewer_whose_sample_cannot_be_sent_is_forgotten(path: Path) -> None:
    class Sink(Feed):
        def sample(self, *, now: bool = False) -> Sample:
            return super().sample(now=now) | {"not JSON": object()}

    with LoopThread() as loop_thread:
        view = OpenView(Sink(loop_thread), path)
        with view, pytest.raises(BatchQueueError, match="shows nothing"):
            next(read_view(path))
        assert not view._viewed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_page_is_told_of_an_end_that_is_an_error(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                sample = {"time": 1.0, "queues": []}
                connection.sendall(json.dumps(sample).encode() + b"\nno sample\n")

        serving = threading.Thread(target=serve)
        serving.start()
        feed = SocketFeed(path)
        feed._reading.join(PATIENCE)
        assert feed.sample() == {"time": 1.0, "queues": [], "ended": True}
        serving.join()


def test_no_more_than_eight_look_at_once(path: Path) -> None:
    with LoopThread() as loop_thread, open_view(loop_thread, path, interval=0.05):
        viewers = [read_view(path) for _ in range(8)]
        for viewer in viewers:
            next(viewer)
        with pytest.raises(BatchQueueError, match="or 8 look at it already"):
            next(read_view(path))
        for viewer in viewers:
            viewer.close()  # type: ignore[attr-defined]


def test_a_forked_child_holds_nothing(path: Path) -> None:
    with LoopThread() as loop_thread:
        view = open_view(loop_thread, path)
        release, wait = os.pipe()
        child = os.fork()
        if child == 0:
            view.close()
            os.close(wait)
            os.read(release, 1)
            os._exit(0)
        try:
            assert next(read_view(path))["queue_count"] == 0
            view.close()
            # The child has no socket of it: who connects is refused, and not kept.
            with open_view(loop_thread, path):
                assert next(read_view(path))["queue_count"] == 0
        finally:
            os.close(wait)
            os.close(release)
            os.waitpid(child, 0)


def test_viewers_end_though_a_child_that_was_forked_meanwhile_lives_on(
    path: Path,
) -> None:
    with LoopThread() as loop_thread:
        view = open_view(loop_thread, path, interval=0.05)
        with socket.socket(socket.AF_UNIX) as viewer:
            viewer.settimeout(PATIENCE)
            viewer.connect(str(path))
            viewer.recv(1)
            release, wait = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(wait)
                os.read(release, 1)
                os._exit(0)
            try:
                view.close()
                while viewer.recv(65_536):
                    pass
            finally:
                os.close(wait)
                os.close(release)
                os.waitpid(child, 0)


def test_the_command_says_that_nobody_is_there(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", str(path), "--once"]) == 1
    assert f"no process shows its queues at {str(path)!r}" in capsys.readouterr().err


def test_the_command_names_a_page_only_where_there_is_one(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", str(path), "--web"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "no process shows its queues" in told.err
    with pytest.raises(SystemExit):
        main(["top", str(path), "--web", "--port", "65536"])
    says = "argument --port: must be a number from 1 to 65535, got '65536'"
    assert says in capsys.readouterr().err


def test_a_port_that_is_taken_is_no_page_of_this_process(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It named the other program's page, and then uvicorn's error."""
    with (
        LoopThread() as loop_thread,
        open_view(loop_thread, path),
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        port = taken.getsockname()[1]
        assert main(["top", str(path), "--web", "--port", str(port)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"port {port} cannot be served: ")


@pytest.mark.parametrize("extra, how", [("rich", []), ("uvicorn", ["--web"])])
def test_the_command_says_what_it_needs(
    path: Path,
    extra: str,
    how: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in (extra, f"{extra}.console", "batchqueue_async.telemetry._top"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, extra, None)
    assert main(["top", str(path), *how]) == 1
    says = f"batchqueue top needs {extra}: pip install 'batchqueue-async[top]'"
    assert says in capsys.readouterr().err


def test_alerts_and_dashboard_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts"]) == 0
    assert "BatchQueueItemLost" in capsys.readouterr().out
    assert main(["dashboard"]) == 0
    assert '"batchqueue"' in capsys.readouterr().out


def test_no_thread_is_left(path: Path) -> None:
    before = set(threading.enumerate())
    with LoopThread() as loop_thread, open_view(loop_thread, path, interval=0.05):
        next(read_view(path))
    assert set(threading.enumerate()) == before


def test_a_viewer_who_does_not_read_holds_nobody_up(path: Path) -> None:
    with LoopThread() as loop_thread:
        for number in range(200):
            loop_thread.open(f"queue {number}", BatchQueueConfig[int](consumer=len))
        view = open_view(loop_thread, path, interval=0.001)
        with socket.socket(socket.AF_UNIX) as viewer:
            viewer.connect(str(path))
            # Until what it was sent fills the socket.
            threading.Event().wait(0.5)
            closing = threading.Thread(target=view.close)
            closing.start()
            closing.join(30.0)
            assert not closing.is_alive()


WITHOUT_SOCKETS = """
import os
import socket
del os.fork, os.register_at_fork
from batchqueue_async._command import main
from batchqueue_async.telemetry import web_view
del socket.AF_UNIX
raise SystemExit(main(["top", "queues.sock"]))
"""


def test_where_there_are_no_unix_sockets_and_no_fork_it_says_so() -> None:
    """As on Windows, where each command and `web_view` failed as it was imported."""
    command = [sys.executable, "-c", WITHOUT_SOCKETS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    says = "a view needs unix sockets, which Python has not here: use web_view\n"
    assert (ended.returncode, ended.stderr) == (1, says)
