"""Reads from a query's checkpoint which ids each of its micro-batches holds."""

import json
from functools import cache
from pathlib import Path

SOURCES = ("files", "rate")

ROWS_PER_SECOND = 200
"""Of the rate source, whose ids are 0, 1, 2 ..."""


class Checkpoint:
    """The log that Spark keeps of a query with one source, `files` or `rate`."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self._source = source
        self._batch_of_file: dict[str, int] = {}

    def committed(self) -> int:
        """The number of the last batch that Spark has committed; -1 for none."""
        return max(self._numbers("commits"), default=-1)

    def planned(self) -> int:
        """The number of the last batch whose content is fixed; -1 for none."""
        return max(self._numbers("offsets"), default=-1)

    def ids(self, batch: int) -> set[int]:
        """The ids of all batches up to and with this one."""
        if batch < 0:
            return set()
        end = json.loads((self.folder / "offsets" / str(batch)).read_text().split()[-1])
        if self._source == "rate":
            return set(range(int(end) * ROWS_PER_SECOND))
        self._read_file_log()
        files = [f for f, n in self._batch_of_file.items() if n <= end["logOffset"]]
        return {number for file in files for number in ids_of(file)}

    def _numbers(self, log: str) -> list[int]:
        folder = self.folder / log
        if not folder.exists():
            return []
        # While it is written, a file has another name.
        return [int(each.name) for each in folder.iterdir() if each.name.isdecimal()]

    def _read_file_log(self) -> None:
        for log in (self.folder / "sources" / "0").iterdir():
            if log.name.startswith(".") or log.suffix not in {"", ".compact"}:
                continue
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                name = entry["path"].rpartition("/")[2]
                self._batch_of_file[name] = entry["batchId"]


def name_of(first: int, end: int) -> str:
    """The name of a file that holds these ids."""
    return f"ids-{first}-{end}.parquet"


@cache
def ids_of(name: str) -> range:
    """The ids that a file with this name holds."""
    first, end = name.removesuffix(".parquet").split("-")[1:]
    return range(int(first), int(end))
