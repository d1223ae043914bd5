"""Worker processes that are forked, replaced and ended, and lose no row.

The parent imports everything, then forks, as `gunicorn --preload` does. Each worker
opens a queue of its own at its first request, and drains it when SIGTERM or its last
request ends it. The database is one file that all of them append to.

    python examples/prefork.py
"""

import os
import signal
import sys
import tempfile
from pathlib import Path

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    SyncBatchQueue,
    close_process_queues,
    process_queue,
)

WORKERS, GENERATIONS, REQUESTS = 4, 3, 500
DATABASE = Path(tempfile.mkdtemp()) / "rows"


def store(batch: list[str]) -> None:
    file = os.open(DATABASE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, "".join(f"{row}\n" for row in batch).encode())
    os.close(file)


def open_rows(loop_thread: LoopThread) -> SyncBatchQueue[str]:
    config = BatchQueueConfig(consumer=store, max_batch=200, linger=0.5)
    return loop_thread.open("rows", config)


def handle(request: int) -> bool:
    """What a WSGI application would do; it needs no loop and knows of no process."""
    return bool(process_queue(open_rows).offer(f"{os.getpid()} {request}"))


def work() -> None:
    """Serve some requests, then end as a worker does that is to be replaced."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if all(map(handle, range(REQUESTS))):
        os.kill(os.getpid(), signal.SIGTERM)
    sys.exit("a row was refused")


def main() -> None:
    handle(0)  # The parent's row waits in the parent's queue while that forks.
    to_start, running = WORKERS * GENERATIONS, 0
    while to_start or running:
        while to_start and running < WORKERS:
            if not os.fork():
                work()
            to_start, running = to_start - 1, running + 1
        _, status = os.wait()
        assert status == 0
        running -= 1
    close_process_queues()  # Exit does it, too: here the parent's row is to count.
    print(f"{len(DATABASE.read_text().splitlines())} rows are there")


if __name__ == "__main__":
    main()
