"""What failed, and was only counted so far, is in the log when a program ends."""

import re

import pytest

from tests.bridge.programs import Program

DAEMON = """
async def fail(batch):
    raise OSError("down")

filled = threading.Event()

async def main():
    config = BatchQueueConfig(consumer=fail, max_batch=1)
    queue = BatchQueue("q", config)
    await queue.start()
    await queue.produce_many(range(30))
    while queue.stats().failed < 30:
        await asyncio.sleep(0.001)
    filled.set()
    await asyncio.sleep(1000)

threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
filled.wait()
"""

GIVEN_UP = """
async def fail(batch):
    if batch == [29]:
        failed.set()
        time.sleep(1000)
    raise OSError("down")

failed = threading.Event()
loop_thread = LoopThread(shutdown_timeout=0.1).start()
queue = loop_thread.open("q", BatchQueueConfig(consumer=fail, max_batch=1))
queue.produce_many(range(30))
failed.wait()
"""


@pytest.mark.real_time
@pytest.mark.parametrize("program", [DAEMON, GIVEN_UP])
def test_a_loop_that_still_runs_or_is_blocked(program: str) -> None:
    ended = Program(program).end()
    first = re.findall(r"q: (\d+) items failed in", ended.log)
    more = re.findall(r"more times? in the last .* \((\d+) items\)", ended.log)
    left = re.findall(r"(\d+) items of 'q' are left", ended.log)
    assert sum(map(int, first + more + left)) == 30, ended.log
    # What is left comes last.
    assert not left or ended.log.rfind("more time") < ended.log.find("are left")
