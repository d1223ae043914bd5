"""A program that has closed stdin, stdout or stderr, as a daemon, has its loops."""

import os

import pytest

from tests.bridge.programs import Program

pytestmark = pytest.mark.skipif(os.name == "nt", reason="it has no uvloop")

# Python begins anew without the files 0 to 2; `told` is what this test reads.
BEGUN = """
if len(sys.argv) < 3:
    told = os.dup(1)
    os.set_inheritable(told, True)
    os.closerange(0, 3)
    os.execv(sys.executable, [*sys.orig_argv, str(told)])
told = int(sys.argv[2])
handled = []

def open_rows(loop_thread):
    return loop_thread.open("rows", BatchQueueConfig(consumer=handled.extend))

async def listen():
    servers = [await asyncio.start_server(print, "127.0.0.1", 0) for _ in range(4)]
    for each in servers:
        each.close()
        await each.wait_closed()
    handled.append("listened")

"""
# What other files the program opens before, and has closed when its handlers connect.
OPENED = {"nothing": "", "files": "files = [open(os.devnull) for _ in range(3)]\n"}
DRAINED = """
with LoopThread() as loop_thread:
    loop_thread.open("first", BatchQueueConfig(consumer=handled.extend)).produce(1)
    for each in files:
        each.close()
    loop_thread.portal.call(listen)
process_queue(open_rows).produce(2)
close_process_queues()
os.write(told, str(handled).encode())
"""


@pytest.mark.parametrize("opened", OPENED)
def test_uvloop_is_not_given_their_numbers(opened: str) -> None:
    """It was, and libuv aborted the process as it closed them, with all it held."""
    pytest.importorskip("uvloop")
    program = BEGUN + "files = []\n" + OPENED[opened] + DRAINED
    with Program(program, opened) as running:
        end = running.end()
    assert end.output == "[1, 'listened', 2]"
    assert (end.status, end.log) == (0, "")
