"""A process of `multiprocessing` whose loop is never closed tells what is left."""

from pathlib import Path

import pytest

from tests.bridge.programs import PREFACE, Program, each_python

ENDS = """
import multiprocessing, multiprocessing.util
from batchqueue_async.ring import Disruptor

sent = None

async def never(batch):
    await asyncio.Event().wait()

def leave_open(method=None):
    # As worker processes of some task queues do: nobody closes it.
    global loop
    loop = asyncio.new_event_loop()
    loop.run_until_complete(start())

async def start():
    send = lambda batch, error: sent.put(batch)
    config = BatchQueueConfig(consumer=never, max_batch=1, on_error=send)
    queue = BatchQueue("rows", config)
    await queue.start()
    assert await queue.produce_many(range(5)) == 5
    await asyncio.sleep(0.01)

def leave_ring_open():
    async def start_ring():
        global disruptor
        disruptor = Disruptor(list, 8)
        disruptor.handle_events_with(lambda event, sequence, end_of_batch: None)
        await disruptor.start()
        ring = disruptor.ring
        for _ in range(3):
            assert ring.try_publish_event(lambda event, sequence: None)

    asyncio.new_event_loop().run_until_complete(start_ring())

def leave_open_on_a_thread():
    opened = threading.Event()

    def work():
        leave_open()
        opened.set()
        wait_for_the_end()

    threading.Thread(target=work).start()
    opened.wait()

def wait_for_the_end():
    while threading.main_thread().is_alive():
        time.sleep(0.001)

def go_on_with_threads():
    # What these do is handled: they go on until after the main thread's end.
    leave_open()
    opened = threading.Barrier(3)

    async def main():
        async with BatchQueue("others", BatchQueueConfig(consumer=sent.put)) as queue:
            opened.wait()
            while threading.main_thread().is_alive():
                await asyncio.sleep(0.001)
            assert await queue.produce("a loop of its own")

    def use_loop_thread():
        config = BatchQueueConfig(consumer=in_thread(sent.put))
        with LoopThread() as loop_thread:
            queue = loop_thread.open("others", config)
            opened.wait()
            wait_for_the_end()
            assert queue.produce("a loop thread")

    threading.Thread(target=asyncio.run, args=(main(),)).start()
    threading.Thread(target=use_loop_thread).start()
    opened.wait()

def leave_running():
    started = threading.Event()

    async def go_on():
        await start()
        started.set()
        await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=(go_on(),), daemon=True).start()
    started.wait()

def leave_open_last():
    def work():
        wait_for_the_end()
        leave_open()

    threading.Thread(target=work).start()

async def use():
    async with BatchQueue("used", BatchQueueConfig(consumer=never)):
        pass

def leave_open_at_its_end():
    # After what one that was closed had to be told.
    asyncio.run(use())
    multiprocessing.util.Finalize(None, leave_open, exitpriority=5)

if sys.argv[2] == "go_on_with_parents_loop":
    parents = asyncio.new_event_loop()
    parents.run_until_complete(use())

def go_on_with_parents_loop():
    parents.run_until_complete(start())

def work(queue, name):
    global sent
    sent = queue
    globals()[name]()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    # One without a thread of its own, which would end before what is told last.
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue, sys.argv[2]))
    process.start()
    process.join()
    assert process.exitcode == 0
    got = []
    while not queue.empty():
        got.append(str(queue.get()))
    print(*sorted(got), sep="; ")
"""

LEFT = "5 items are left; on_error is told"
ROWS = f"ERROR the loop of queue 'rows' ended without its shutdown: {LEFT}"
ITEMS = "[0, 1, 2, 3, 4]"
ENDED = {
    "leave_open": (ITEMS, ROWS),
    "leave_open_on_a_thread": (ITEMS, ROWS),
    "leave_open_last": (ITEMS, ROWS),
    "leave_open_at_its_end": (ITEMS, ROWS),
    "go_on_with_parents_loop": (ITEMS, ROWS),
    "leave_running": ("", "while the loop of queue 'rows' runs: 5 items are lost"),
    "leave_ring_open": ("", "3 events are left"),
    "go_on_with_threads": (
        f"['a loop of its own']; ['a loop thread']; {ITEMS}",
        ROWS,
    ),
}


@each_python
@pytest.mark.parametrize("name", ENDED)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_what_a_loop_left_open_has_not_handled_is_told_once(
    name: str, method: str, python: Path, tmp_path: Path
) -> None:
    """Where the process was forked not a word was said: it has no `atexit`."""
    program = tmp_path / "program.py"
    program.write_text(PREFACE + ENDS)
    ended = Program(program, method, name, python=python).end()
    told, log = ENDED[name]
    assert (ended.status, ended.output) == (0, told)
    assert log in ended.log
    assert ended.log.count("ERROR") == 1, ended.log
