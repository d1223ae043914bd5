"""A thread that is no more at the interpreter's exit takes no import lock along."""

import subprocess
import sys

PROGRAM = """
import asyncio, sys, threading, time

class Slow:
    "What the first call needs takes long to import, as from a cold disk."

    def find_spec(self, name, path=None, target=None):
        if name == "anyio._backends._asyncio":
            print(threading.current_thread() is threading.main_thread())
            time.sleep(0.1)

sys.meta_path.insert(0, Slow())

from batchqueue_async import BatchQueue, BatchQueueConfig, in_thread

async def main():
    queue = BatchQueue("q", BatchQueueConfig(consumer=in_thread(len)))
    await queue.start()
    await queue.produce("one")
    await asyncio.sleep(0.01)

# Not drained: the program ends while the first call begins.
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""


def test_the_first_call_of_a_thread_imports_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert {*done.stdout.split()} == {"True"}, done.stderr
