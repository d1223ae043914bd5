"""The exporter: every cancellation becomes a line of JSON in a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from .events import Cancellation


class JsonLines:
    """A plain blocking handler; `in_thread` keeps it off the event loop."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def consume(self, batch: list[Cancellation]) -> None:
        self._file.writelines(f"{json.dumps(asdict(event))}\n" for event in batch)

    def on_idle(self) -> None:
        self._file.flush()

    def on_flush(self) -> None:
        self._file.flush()

    def on_close(self) -> None:
        self._file.close()
