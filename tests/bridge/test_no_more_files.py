"""Where the process can open no more files a batch fails, and the next is handled.

What goes on by itself, retries and leaving above all, needs none.
"""

import pytest

from tests.bridge.programs import Program

FILES = """
import resource

resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
files = []

def take_all_files():
    with contextlib.suppress(OSError):
        while True:
            files.append(open(os.devnull))

"""
FULL = """
import batchqueue_async._bridge.worker  # As another queue has done before.

handled, failed = [], []

def keep(batch, error):
    failed.append((batch, type(error).__name__))

async def main():
    config = BatchQueueConfig(consumer=in_thread(handled.extend), on_error=keep)
    take_all_files()
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        with contextlib.suppress(DeliveryError):
            await queue.flush()
        for each in files:
            each.close()
        await queue.produce(2)

asyncio.run(main())
print(handled, failed)
"""

RETRIED = """
handled = []

class Sink:
    calls = 0

    async def consume(self, batch):
        self.calls += 1
        if self.calls < 3:
            open(os.devnull)
        handled.extend(batch)

    async def on_close(self):
        handled.append("closed")

async def main():
    retry = Retry(attempts=3, wait_initial=0.001)
    async with BatchQueue("q", BatchQueueConfig(consumer=Sink(), retry=retry)) as queue:
        take_all_files()
        await queue.produce_many([1, 2])
        await queue.flush()
        await queue.produce(3)

logging.disable(logging.WARNING)
asyncio.run(main())
print(handled)
"""

RING = """
from batchqueue_async.ring import Disruptor

handled = []

async def main():
    disruptor = Disruptor(list, 8)
    disruptor.handle_events_with(lambda event, sequence, _: handled.append(sequence))
    async with disruptor as ring:
        take_all_files()
        for _ in range(3):
            await ring.publish_event(lambda event, sequence: None)

asyncio.run(main())
print(handled)
"""

GONE = """
import anyio

handled = []

async def main():
    async with BatchQueue("q", BatchQueueConfig(consumer=handled.extend)) as queue:
        # The installation is replaced by another one: nothing is where it was.
        anyio.__path__.clear()
        sys.path.clear()
        await queue.produce(1)

asyncio.run(main())
print(handled)
"""


def test_a_handlers_thread_outlasts_it() -> None:
    """Its first call imports what could not be imported as the queue was opened."""
    pytest.importorskip("resource")
    ended = Program(FILES + FULL).end()
    assert (ended.output, ended.log) == ("[2] [([1], 'OSError')]", "")


@pytest.mark.parametrize(
    "program, told", [(RETRIED, "[1, 2, 3, 'closed']"), (RING, "[0, 1, 2]")]
)
def test_what_was_accepted_is_handled_without_any(program: str, told: str) -> None:
    """Retries and leaving import nothing: it fails then, as what is left would."""
    pytest.importorskip("resource")
    ended = Program(FILES + program).end()
    assert (ended.output, ended.log) == (told, "")


def test_it_is_left_where_the_installation_is_gone() -> None:
    """As where a deployment replaces an environment, and then stops what ran there."""
    ended = Program(GONE).end()
    assert (ended.output, ended.log) == ("[1]", "")
