"""What a directory of Parquet files must be, and what its files may be."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchqueue_async._validation import refuse

# pyarrow takes such a text for a URI, even if there is a folder of this name; and an
# empty one would be the folder that the program happens to run in.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|\Z")
# What Python makes of bytes of another encoding.
_SURROGATE = re.compile("[\ud800-\udfff]")


def require_directory(directory: str | Path) -> None:
    """Refuse what pyarrow would take for another place, or not at all."""
    if _URI.match(str(directory)):
        refuse("directory", "a path of a mounted file system, no URI", directory)
    if _SURROGATE.search(str(directory)):
        refuse("directory", "a path in UTF-8, which pyarrow takes", str(directory))
    if os.path.expanduser(directory) != str(directory):  # noqa: PTH111 - raises
        refuse("directory", "a full path: pyarrow expands ~", str(directory))


def require_compression(compression: str) -> None:
    """Refuse a compression that the writer would refuse at the first row."""
    with suppress(pa.ArrowException, AttributeError, TypeError, ValueError):
        pq.ParquetWriter(
            pa.BufferOutputStream(), pa.schema([]), compression=compression
        ).close()
        return
    refuse("compression", "one that pyarrow's ParquetWriter takes", compression)
