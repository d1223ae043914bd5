"""A unix socket over which another process of the same user looks into this one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Self

from batchqueue_async._engine.runtime.forking import abandon_after_fork
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._validation import require_instance
from batchqueue_async.telemetry._feed import (
    INTERVAL,
    KEPT_SAMPLES,
    Feed,
    Sample,
    main_figures,
)
from batchqueue_async.telemetry._source import PATIENCE, Target

_MOST_VIEWERS = 8
_LAST_SECONDS = 0.5
"""For the last sample, when a view is closed."""
# Why nobody can be let in now, though later: Linux says so of files even while nobody
# asks to be.
_PASSING = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
)
_AGAIN = 0.5
"""Seconds until it is tried again."""


def open_view(
    target: Target,
    path: str | os.PathLike[str],
    *,
    interval: float = INTERVAL,
    patience: float = PATIENCE,
) -> OpenView:
    """Let `batchqueue top PATH` look at a target, from another process.

    Only this user may connect. Nothing can be changed that way, and nothing is read
    while nobody looks. It needs a thread, which ends with `close`, or the program.

    Args:
        target: A queue, from either side, a manager, a LoopThread, `QueuesElsewhere`,
            or several of them.
        path: Of the socket. What a dead process left there is replaced.
        interval: Seconds between two samples.
        patience: Seconds that a loop gets to answer.

    Raises:
        TypeError, ValueError: An argument is wrong.
        BatchQueueError: Another process serves there, or there is something else; or
            there are no unix sockets, as on Windows.
        OSError: The socket can't be made.
    """
    require_instance("path", path, (str, os.PathLike), "a path, a str or a Path")
    feed = Feed(target, interval=interval, patience=patience)
    return OpenView(feed, Path(path))


class OpenView:
    """What `open_view` has begun; `close` ends it, as does leaving `with`."""

    def __init__(self, feed: Feed, path: Path) -> None:
        self._feed = feed
        self._path = path
        # The socket's place even if the program changes its directory.
        self._place = path.absolute()
        self._process = os.getpid()
        _remove_left_behind(path)
        self._listener = _unix_socket()
        try:
            self._inode = _bind_privately(self._listener, path)
        except BaseException:
            self._listener.close()
            raise
        self._viewed: set[socket.socket] = set()
        abandon_after_fork(self)
        self._last: Sample | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._accept, name=f"batchqueue view {path}", daemon=True
        )
        self._thread.start()

    @property
    def path(self) -> Path:
        """The socket's."""
        return self._path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and remove the socket. Idempotent."""
        if self._closed.is_set() or self._process != os.getpid():
            return
        if self._viewed:
            # A last sample: viewers see the end, not what was up to a second before. An
            # error of a target must not prevent closing.
            with contextlib.suppress(Exception):
                self._last = self._feed.sample(now=True)
        self._closed.set()
        # Wakes the thread that accepts, which `close` alone does not.
        self._end(self._listener)
        self._thread.join(_LAST_SECONDS)
        # A viewer who does not read blocks the thread that serves him.
        for each in tuple(self._viewed):
            self._end(each)
        self._remove()
        self._listener.close()
        self._thread.join()

    def _remove(self) -> None:
        # While the listener is open no other file gets its inode.
        with contextlib.suppress(FileNotFoundError):
            # If the socket was removed, another process may serve there by now.
            if self._place.lstat().st_ino == self._inode:
                self._place.unlink()

    @staticmethod
    def _end(each: socket.socket) -> None:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Close the sockets in a forked child: they are the parent's to serve."""
        self._listener.close()
        # Else viewers would wait for as long as the child lives.
        for each in tuple(self._viewed):
            each.close()

    def _accept(self) -> None:
        viewers: list[threading.Thread] = []
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno not in _PASSING:
                    break
                self._closed.wait(_AGAIN)
                continue
            viewers = [each for each in viewers if each.is_alive()]
            viewer = self._begin(connection) if len(viewers) < _MOST_VIEWERS else None
            if viewer is None:
                connection.close()
            else:
                viewers.append(viewer)
        for viewer in viewers:
            viewer.join()

    def _begin(self, connection: socket.socket) -> threading.Thread | None:
        """Start to serve a viewer; return None if there can be no more threads."""
        viewer = threading.Thread(
            target=self._serve,
            args=(connection,),
            name="batchqueue viewer",
            daemon=True,
        )
        self._viewed.add(connection)
        try:
            viewer.start()
        except RuntimeError:
            self._viewed.discard(connection)
            return None
        return viewer

    def _serve(self, connection: socket.socket) -> None:
        # A viewer who does not read must not keep a thread.
        connection.settimeout(5.0)
        try:
            with connection, contextlib.suppress(OSError):
                while not self._closed.is_set():
                    _send(connection, self._feed.sample())
                    self._closed.wait(self._feed.interval)
                if self._last is not None:
                    _send(connection, self._last)
        finally:
            # Also if a target raised: a viewer who is gone must not count.
            self._viewed.discard(connection)


def _send(connection: socket.socket, sample: Sample) -> None:
    line = json.dumps(sample, allow_nan=False) + "\n"
    connection.sendall(line.encode())


_FIRST_SECONDS = 15.0
"""For the first sample, which a process sends at once: its loops need half a second."""


def read_view(path: str | os.PathLike[str]) -> Iterator[Sample]:
    """Yield the samples that a process sends over its socket, until it ends.

    Raises:
        BatchQueueError: Nobody serves there, or too many look already, or the process
            does not answer.
    """
    has_come = False
    with _unix_socket() as connection:
        connection.settimeout(_FIRST_SECONDS)
        try:
            connection.connect(os.fspath(path))
        except BlockingIOError as error:  # as many wait already as the system lets
            raise _silent(path) from error
        except OSError as error:
            msg = f"no process shows its queues at {os.fspath(path)!r}: {error}"
            raise BatchQueueError(msg) from error
        with connection.makefile("r", encoding="utf-8") as lines:
            try:
                first = next(lines, "")
            except TimeoutError as error:
                raise _silent(path) from error
            connection.settimeout(None)
            for line in chain((first,), lines):
                # The last line may be cut off.
                if line.endswith("\n"):
                    has_come = True
                    yield json.loads(line)
    if not has_come:
        msg = (
            f"the process at {os.fspath(path)!r} shows nothing: it has just ended, or "
            f"{_MOST_VIEWERS} look at it already"
        )
        raise BatchQueueError(msg)


def _silent(path: str | os.PathLike[str]) -> BatchQueueError:
    msg = (
        f"the process at {os.fspath(path)!r} does not answer: it is stopped (a signal,"
        " a debugger, a frozen container), or something in it keeps the interpreter's"
        " lock"
    )
    return BatchQueueError(msg)


class SocketFeed:
    """Samples that come over a socket, for pages, until that process ends."""

    interval = INTERVAL

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._samples = read_view(path)
        # Raises if nobody serves there.
        self._latest: Sample = next(self._samples)
        self._history = deque([main_figures(self._latest)], maxlen=KEPT_SAMPLES)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def sample(self) -> Sample:
        """Return the latest sample that came."""
        return self._latest

    def history(self) -> list[Sample]:
        """Return what came so far: a page that is loaded again keeps its curves."""
        return list(self._history)

    def _read(self) -> None:
        try:
            for sample in self._samples:
                self._latest = sample
                self._history.append(main_figures(sample))
        finally:
            # However it ended: a connection may break, or bring what is no sample.
            self._latest = self._latest | {"ended": True}


def _unix_socket() -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        msg = "a view needs unix sockets, which Python has not here: use web_view"
        raise BatchQueueError(msg)
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def _bind_privately(listener: socket.socket, path: Path) -> int:
    """Bind it to `path`, where nothing may be, and listen; returns the inode."""
    # Made in a folder of our own and moved: nobody connects before it is private.
    with tempfile.TemporaryDirectory(prefix=".view-", dir=path.parent) as folder:
        made = Path(folder, "s")
        listener.bind(os.fspath(made))
        made.chmod(stat.S_IRUSR | stat.S_IWUSR)
        inode = made.lstat().st_ino
        # First: a socket with a name at which nobody listens is taken for left behind.
        listener.listen(_MOST_VIEWERS)
        try:
            # Unlike a rename it replaces nothing that another process has just made.
            os.link(made, path)
        except FileExistsError:
            raise _serves(path) from None
        except OSError:  # a file system without hard links
            made.rename(path)
    return inode


def _remove_left_behind(path: Path) -> None:
    """Remove the socket of a process that is gone."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            msg = f"path must be free or a socket's, got {os.fspath(path)!r}"
            raise BatchQueueError(msg)
    # Tried even if nothing is there: it refuses a path that is too long to connect to,
    # to which a socket can be moved all the same.
    if _is_served(path):
        raise _serves(path)
    if not path.is_socket():
        return
    with tempfile.TemporaryDirectory(prefix=".view-", dir=path.parent) as folder:
        left = Path(folder, "s")
        with contextlib.suppress(FileNotFoundError):
            path.rename(left)
            # Another process may have replaced it, and serve there by now.
            if _is_served(left):
                with contextlib.suppress(FileExistsError):
                    os.link(left, path)
                raise _serves(path)


def _is_served(path: Path) -> bool:
    with _unix_socket() as probe:
        try:
            probe.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def _serves(path: Path) -> BatchQueueError:
    msg = f"path must be free, but a process serves at {os.fspath(path)!r}"
    return BatchQueueError(msg)
