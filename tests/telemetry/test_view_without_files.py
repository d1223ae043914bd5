"""A view outlasts a time in which its process can open no files or threads."""

import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no unix sockets"),
]

LOOKED_AT = """
import os, resource, socket, sys, threading, time

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.telemetry import open_view

def look():
    viewer = socket.socket(socket.AF_UNIX)
    viewer.connect(sys.argv[1])
    return viewer

def has_come(viewer):
    viewer.settimeout(30)
    with viewer:
        return bool(viewer.recv(1))

with LoopThread() as loop_thread, open_view(loop_thread, sys.argv[1], interval=0.05):
    loop_thread.open("orders", BatchQueueConfig(consumer=len))
"""
NO_FILES = """
    assert has_come(look())
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    waiting, files = socket.socket(socket.AF_UNIX), []
    try:
        while True:
            files.append(open(os.devnull))
    except OSError:
        pass
    # Only now: who waits for viewers already has a file for the next one.
    waiting.connect(sys.argv[1])
    assert has_come(waiting)
    time.sleep(0.3)  # Who was let in has left, so that the view waits for others.
    for each in files:
        each.close()
    print(has_come(look()))
"""
NO_THREADS = """
    start = threading.Thread.start

    def refused(thread):
        threading.Thread.start = start
        raise RuntimeError("can't start new thread")

    threading.Thread.start = refused
    print(has_come(look()), has_come(look()))
"""


@pytest.mark.parametrize(
    "program, told", [(NO_FILES, "True\n"), (NO_THREADS, "False True\n")]
)
def test_whoever_looks_later_is_served(
    program: str, told: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("v") / "s"
    done = subprocess.run(
        [sys.executable, "-c", LOOKED_AT + program, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, told, "")
