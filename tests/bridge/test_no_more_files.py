"""Where the process can open no more files a batch fails, and the next is handled."""

import pytest

from tests.bridge.programs import Program

FULL = """
import resource

handled, failed = [], []

def keep(batch, error):
    failed.append((batch, type(error).__name__))

async def main():
    config = BatchQueueConfig(consumer=in_thread(handled.extend), on_error=keep)
    async with BatchQueue("q", config) as queue:
        files = []
        with contextlib.suppress(OSError):
            while True:
                files.append(open(os.devnull))
        await queue.produce(1)
        with contextlib.suppress(DeliveryError):
            await queue.flush()
        for each in files:
            each.close()
        await queue.produce(2)

resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
asyncio.run(main())
print(handled, failed)
"""


def test_a_handlers_thread_outlasts_it() -> None:
    """Its first call imports what it needs."""
    pytest.importorskip("resource")
    ended = Program(FULL).end()
    assert (ended.output, ended.log) == ("[2] [([1], 'OSError')]", "")
