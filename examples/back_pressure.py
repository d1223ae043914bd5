"""One consumer behind one connection; a slow receiver slows the producers down.

`produce` waits while `buffer_size` items wait: memory stays bounded, nothing is lost,
and the producer runs at the receiver's pace. The receiver is a TCP server in here.

    python examples/back_pressure.py
"""

import asyncio
import json
import time
from asyncio import StreamReader, StreamWriter

from batchqueue_async import BatchQueue, BatchQueueConfig


class Exporter:
    """Sends each batch as a line of JSON and waits until the receiver confirms it."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def consume(self, batch: list[int]) -> None:
        """Send one batch; raising here would fail it."""
        self._writer.write(json.dumps(batch).encode() + b"\n")
        await self._writer.drain()
        if await self._reader.readline() != b"%d\n" % len(batch):
            msg = "the receiver did not confirm the batch"
            raise ConnectionError(msg)

    async def on_close(self) -> None:
        """Hang up, after the last batch."""
        self._writer.close()
        await self._writer.wait_closed()


async def receive(reader: StreamReader, writer: StreamWriter) -> None:
    """Confirm each line with the number of its items; slow on purpose."""
    while line := await reader.readline():
        await asyncio.sleep(0.01)
        writer.write(b"%d\n" % len(json.loads(line)))
    writer.close()


async def main() -> None:
    """Produce faster than the receiver can take it."""
    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    exporter = Exporter(*await asyncio.open_connection(*address))
    config = BatchQueueConfig(consumer=exporter, buffer_size=200, max_batch=100)
    most = 0
    started = time.perf_counter()
    async with server, BatchQueue("exporter", config) as queue:
        for number in range(5000):
            await queue.produce(number)
            most = max(most, queue.stats().waiting)
        seconds = time.perf_counter() - started
    print(f"{queue.stats().handled} items were confirmed by the receiver")
    print(f"at most {most} of them waited at the same time")
    print(f"producing took {seconds:.2f} s; the receiver slept for 0.50 s")


if __name__ == "__main__":
    asyncio.run(main())
