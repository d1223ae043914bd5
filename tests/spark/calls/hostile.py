"""A driver program whose frames call `hostile_service`: prints JSON.

Run: python -m tests.spark.calls.hostile MASTER FOLDER PORT, with MASTER as for
`tests.spark.executor.elsewhere`. Each way has a Python worker killed once.
"""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from batchqueue_async import Retry, RetryAfter
from batchqueue_async.spark import map_async
from tests.spark.executor.elsewhere import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 300
FATAL = 100
"""Who calls for this row is killed, once."""
_REFUSED, _LIMITED = 400, 429


class Poison(Exception):
    """The service will never take one of these items."""


@dataclass(frozen=True)
class OpenSession:
    """Opens a client."""

    port: int

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Open it."""
        url = f"http://127.0.0.1:{self.port}"
        async with aiohttp.ClientSession(url) as client:
            yield client


@dataclass(frozen=True)
class Ask:
    """A call that kills its process where `marker` is not there yet."""

    marker: str
    is_strict: bool = False
    is_flat: bool = False

    async def __call__(
        self, client: aiohttp.ClientSession, batch: list[dict[str, Any]]
    ) -> list[Any]:
        """Call once."""
        ids = [item["id"] for item in batch]
        query = {"strict": "1"} if self.is_strict else None
        async with client.post("/", json=ids, params=query) as response:
            if response.status == _LIMITED:
                raise RetryAfter(float(response.headers["Retry-After"]))
            if response.status == _REFUSED:
                msg = "not this one"
                raise Poison(msg)
            response.raise_for_status()
            answer = await response.json()
        if FATAL in ids:
            self._die_once()
        rows = [*zip(ids, answer, strict=True)]
        return [[row] * (row[0] % 3) for row in rows] if self.is_flat else rows

    def _die_once(self) -> None:
        marker = Path(self.marker)
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Ways:
    """Frames that call the service, each in another way."""

    def __init__(self, spark: "SparkSession", home: Path, port: int) -> None:
        self._spark = spark
        self._home = home
        self._port = port

    def batch(self, name: str, **others: Any) -> list[list[Any]]:  # noqa: ANN401
        """Return the rows of a batch."""
        frame = self._spark.range(0, ROWS, 1, 3)
        return [[*row] for row in self._mapped(frame, name, **others).collect()]

    def stream(self, name: str) -> list[list[Any]]:
        """Return the rows of three micro-batches, as they were stored."""
        source, stored = str(self._home / "in"), str(self._home / "out")
        self._spark.range(0, ROWS, 1, 3).write.parquet(source)
        reader = self._spark.readStream.schema("id BIGINT")
        frame = reader.option("maxFilesPerTrigger", 1).parquet(source)
        writer = self._mapped(frame, name).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._home / "at"))
        query = writer.option("path", stored).trigger(availableNow=True).start()
        query.awaitTermination(120)
        return sorted([*row] for row in self._spark.read.parquet(stored).collect())

    def _mapped(
        self,
        frame: "DataFrame",
        name: str,
        *,
        is_strict: bool = False,
        **others: Any,  # noqa: ANN401
    ) -> "DataFrame":
        is_flat = others.get("flat", False)
        return map_async(
            frame,
            Ask(str(self._home / f"{name} died"), is_strict, is_flat),
            "id BIGINT, y BIGINT",
            open=OpenSession(self._port),
            max_batch=5,
            in_flight=4,
            timeout=1.0,
            retry=Retry(
                attempts=200, wait_initial=0.05, wait_max=0.5, split_on=(Poison,)
            ),
            **others,
        )


def main(master: str, folder: str, port: str) -> None:
    """Call in each of the ways."""
    spark = session(master)
    ways = Ways(spark, Path(folder), int(port))
    answer = {
        "in order": ways.batch("in order"),
        "flat": sorted(ways.batch("flat", flat=True, ordered=False)),
        "column": ways.batch("column", is_strict=True, on_error="column"),
        "null": ways.batch("null", is_strict=True, on_error="null"),
        "stream": ways.stream("stream"),
        "died": len([*Path(folder).glob("* died")]),
    }
    spark.stop()
    print(json.dumps(answer))  # noqa: T201  # a program


if __name__ == "__main__":
    main(*sys.argv[1:])
