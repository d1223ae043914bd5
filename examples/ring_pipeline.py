"""Journal and replicate side by side, then apply what is safe in both places.

One stream of transfers, three handlers that each see all of it. The journal writes to a
file, the replicator to a server over a socket; both work in batches of whatever is
there, so the slower they are, the larger their batches. An account changes only after
the transfer is on disk and confirmed by the replica.

    python examples/ring_pipeline.py
"""

import asyncio
import os
import tempfile
from collections import Counter
from pathlib import Path

from batchqueue_async.ring import Disruptor

TRANSFERS = 20_000


class Transfer:
    """An event: its slot is filled again and again."""

    __slots__ = ("account", "cents")

    def __init__(self) -> None:
        self.account = ""
        self.cents = 0

    def as_line(self) -> str:
        return f"{self.account} {self.cents}\n"


def fill(transfer: Transfer, sequence: int, account: str, cents: int) -> None:
    transfer.account = account
    transfer.cents = cents


class Journal:
    """Writes each batch with one call, and waits until it is on the disk."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self.batches = 0

    async def on_batch(self, transfers: list[Transfer], first_sequence: int) -> None:
        self._file.writelines(transfer.as_line() for transfer in transfers)
        self.batches += 1
        await asyncio.to_thread(self._sync)

    def on_shutdown(self) -> None:
        self._file.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


class Replicator:
    """Sends each transfer, and waits for the replica at the end of a batch."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.confirmations = 0

    async def on_start(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(port=self._port)

    async def on_event(
        self, transfer: Transfer, sequence: int, end_of_batch: bool
    ) -> None:
        self._writer.write(transfer.as_line().encode())
        if end_of_batch:
            self._writer.write(b"confirm\n")
            await self._writer.drain()
            await self._reader.readline()
            self.confirmations += 1

    async def on_shutdown(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Accounts:
    """What the transfers are about; sync, so an event costs no await."""

    def __init__(self) -> None:
        self.balances: Counter[str] = Counter()

    def on_event(self, transfer: Transfer, sequence: int, end_of_batch: bool) -> None:
        self.balances[transfer.account] += transfer.cents


class Replica:
    """The other machine, played by a server in this program."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while line := (await reader.readline()).decode():
            if line == "confirm\n":
                writer.write(b"ok\n")
            else:
                self.lines.append(line)
        writer.close()


async def main() -> None:
    replica = Replica()
    server = await asyncio.start_server(replica.serve, "localhost", 0)
    async with server:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "journal")
            port = server.sockets[0].getsockname()[1]
            journal, replicator, accounts = Journal(path), Replicator(port), Accounts()
            disruptor = Disruptor(Transfer, 1024)
            disruptor.handle_events_with(journal, replicator).then(accounts)
            print(disruptor.describe().partition("\n\n")[0])
            async with disruptor as ring:
                for number in range(TRANSFERS):
                    account = f"account-{number % 3}"
                    await ring.publish_event(fill, account, number % 100)
            journaled = await asyncio.to_thread(path.read_text)

    print(f"{journaled.count(chr(10))} transfers in {journal.batches} writes to disk")
    print(
        f"{len(replica.lines)} replicated, confirmed {replicator.confirmations} times"
    )
    print("the same in both places:", journaled == "".join(replica.lines))
    print("balances:", dict(sorted(accounts.balances.items())))


if __name__ == "__main__":
    asyncio.run(main())
