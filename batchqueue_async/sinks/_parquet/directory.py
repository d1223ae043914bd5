"""A directory of published epochs in Parquet, and the files that wait beside them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from batchqueue_async._validation import refuse

from ..epoch_attempts import prefix
from ..epochs import Epoch
from ..fences import refuse_query, require_own
from ..staged import StagedRowsMissing, require_same_columns
from .staged_file import StagedFile, force_to_disk, telling_path

_MANIFEST = "_manifest.json"
# What the folders' names start with: readers make a column of it.
KEY = "batchqueue_epoch"
# What it was in version 0.1. Readers take folders of one key only, so that a directory
# keeps the one that it began with.
_OLD_KEY = "epoch"
# Seconds after which what nobody has written to died with its driver.
_KEPT = 7 * 24 * 3600.0
# Of folders that are being deleted; who deletes them may die meanwhile.
_OVER = "over-"
_MOST_TRIES = 100
# Bytes of a file's name.
_LONGEST = 255
# Names that are one file's on every file system.
_PLAIN = re.compile(r"[0-9a-z][0-9a-z-]{0,63}")
# pyarrow takes such a text for a URI, even if there is a folder of this name; and an
# empty one would be the folder that the program happens to run in.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|\Z")
# What Python makes of bytes of another encoding.
_SURROGATE = re.compile("[\ud800-\udfff]")


class Part(NamedTuple):
    """A file of an epoch: its name there, where it waits, and how many rows it has.

    One without rows says which columns there are, if no other does.
    """

    name: str
    path: Path
    rows: int
    columns: Sequence[str] = ()


class ParquetDirectory:
    """Files wait in a folder for each epoch, and in it one for each run.

    What ends is renamed before it is deleted: who holds one of its files open can't
    give it its name any more, and who comes later finds no folder. The name of the
    folder for what waits starts with an underscore, so readers pass over it.
    """

    def __init__(
        self, directory: str | Path, staging: str, row_group: int, compression: str
    ) -> None:
        _require_directory(directory)
        _require_compression(compression)
        self.path = Path(directory)
        self._staging = self.path / staging
        self._row_group = row_group
        self._compression = compression

    def folder(self, epoch: Epoch) -> Path:
        name = f"{self._key()}={quote(epoch.query, safe='')}-{epoch.batch:08d}"
        if len(name) > _LONGEST:
            rule = f"so short that its folder's name has {_LONGEST} letters at most"
            refuse("query", rule, epoch.query)
        return self.path / name

    def require_names(self, columns: Sequence[str]) -> None:
        """Refuse a column of the folders' key: readers would take it for its values."""
        key = self._key()
        for column in columns:
            if column.lower() == key:
                msg = (
                    f"column {column!r} must have another name: readers take"
                    f" {key}=... in the names of the directory's folders for its values"
                )
                if key == _OLD_KEY:
                    msg += " (those of a new directory have another key)"
                raise ValueError(msg)

    def is_published(self, epoch: Epoch) -> bool:
        """Whether the epoch's folder is there, which is data and fence in one.

        An empty one was emptied: the fence has gone with the data, and a folder can be
        renamed to its name. It is on the disk: who renamed it may have died before.
        """
        with suppress(FileNotFoundError), os.scandir(self.folder(epoch)) as found:
            if any(found):
                force_to_disk(self.path)
                return True
        return False

    def has_own(self, epoch: Epoch) -> bool:
        """Whether it is there; raise if the manifest notes another stream."""
        if self.is_published(epoch):
            require_own(epoch, _noted_in(self.folder(epoch), "checkpoint"))
            return True
        self._require_query(epoch)
        return False

    def _require_query(self, epoch: Epoch) -> None:
        """Raise if the stream has written the batch under another query.

        Whose last batch has its folder goes on as before: all names would be read.
        """
        if epoch.checkpoint is None:
            return
        if epoch.batch and self.folder(Epoch(epoch.query, epoch.batch - 1)).exists():
            return
        end = f"-{epoch.batch:08d}"
        for name in self._names():
            if name.endswith(end) and _key_of(name) in {KEY, _OLD_KEY}:
                folder = self.path / name
                if _noted_in(folder, "checkpoint") == epoch.checkpoint:
                    refuse_query(epoch, _noted_in(folder, "query") or name)

    def begin_run(self, epoch: Epoch, run: str) -> None:
        """Make the run's folder: once it is gone, so is the run."""
        self._require_own()
        self.folder(epoch)  # refused before its rows are written, not after
        _make_folder(self._run_folder(epoch, run))

    def new_file(self, epoch: Epoch, run: str, name: str) -> StagedFile:
        path = self._run_folder(epoch, run) / f"{_file_name(name)}.parquet"
        return StagedFile(path, self._row_group, self._compression)

    def publish(self, epoch: Epoch, parts: Sequence[Part]) -> bool:
        """Make the epoch's folder appear in one rename; return False if it is there."""
        is_new = not self.has_own(epoch)
        parts = [part for part in parts if part.rows] or parts[:1]
        if is_new:
            # Readers may assume that all files have the first one's columns.
            require_same_columns([part.columns for part in parts])
            folder = self._run_folder(epoch, f"publish {uuid4().hex}")
            try:
                with telling_path(folder):
                    _gather(folder, epoch, parts)
                folder.rename(self.folder(epoch))
            except (OSError, StagedRowsMissing):
                # Another process may have published the epoch, and cleaned up, since.
                if not self.has_own(epoch):
                    _put_back(folder, parts)
                    raise
                is_new = False
            force_to_disk(self.path)
        self.clear(epoch)
        self._clear_old()
        return is_new

    def clear(self, epoch: Epoch) -> None:
        # Earlier versions' folders have longer names with the same beginning.
        for folder in self._staging.glob(f"{prefix(epoch)}*"):
            self._delete(folder)

    def clear_run(self, epoch: Epoch, run: str) -> None:
        """Delete what one run has waiting for the epoch, and nothing of another's."""
        folder = self._run_folder(epoch, run)
        self._delete(folder)
        with suppress(OSError):  # others are at work in it, or it was never made
            folder.parent.rmdir()

    def _clear_old(self) -> None:
        """Delete what died with its driver: nobody has written to it for 7 days."""
        oldest = time.time() - _KEPT
        with suppress(OSError):
            for folder in list(self._staging.iterdir()):
                if folder.name.startswith(_OVER) or all(
                    changed < oldest for changed in _changes(folder)
                ):
                    self._delete(folder)

    def _key(self) -> str:
        for name in self._names():
            if (key := _key_of(name)) in {KEY, _OLD_KEY}:
                return key
        return KEY

    def _require_own(self) -> None:
        """Refuse to begin beside others' Parquet files.

        Spark passes those over, without a word, that are beside folders with a key, and
        refuses folders of two keys.
        """
        others = []
        for name in self._names():
            if (key := _key_of(name)) in {KEY, _OLD_KEY}:
                return
            if name[0] not in "._" and (key or name.endswith(".parquet")):
                others.append(name)
        if others:
            msg = (
                f"directory {self.path} must be empty or the sink's own, got"
                f" {others[0]!r} in it, which Spark would not read any more"
            )
            raise ValueError(msg)

    def _names(self) -> Iterator[str]:
        with suppress(FileNotFoundError), os.scandir(self.path) as found:
            for each in found:
                yield each.name

    def _run_folder(self, epoch: Epoch, run: str) -> Path:
        return self._staging / prefix(epoch) / _file_name(run)

    def _delete(self, folder: Path) -> None:
        over = self._staging / f"{_OVER}{uuid4().hex}"
        try:
            folder.rename(over)
        except FileNotFoundError:
            return
        shutil.rmtree(over, ignore_errors=True)


def _require_directory(directory: str | Path) -> None:
    """Refuse what pyarrow would take for another place, or not at all."""
    if _URI.match(str(directory)):
        refuse("directory", "a path of a mounted file system, no URI", directory)
    if _SURROGATE.search(str(directory)):
        refuse("directory", "a path in UTF-8, which pyarrow takes", str(directory))
    if os.path.expanduser(directory) != str(directory):  # noqa: PTH111 - raises
        refuse("directory", "a full path: pyarrow expands ~", str(directory))


def _require_compression(compression: str) -> None:
    """Refuse a compression that the writer would refuse at the first row."""
    with suppress(pa.ArrowException, AttributeError, TypeError, ValueError):
        pq.ParquetWriter(
            pa.BufferOutputStream(), pa.schema([]), compression=compression
        ).close()
        return
    refuse("compression", "one that pyarrow's ParquetWriter takes", compression)


def _file_name(name: str) -> str:
    """Return a run's or an attempt's name, or a digest of one that may be no file's."""
    if _PLAIN.fullmatch(name):
        return name
    return hashlib.sha256(name.encode()).hexdigest()


def _key_of(name: str) -> str:
    """Return the key of a folder's name; "" if it has none."""
    key, equals, _ = name.partition("=")
    return key if equals else ""


def _gather(folder: Path, epoch: Epoch, parts: Sequence[Part]) -> None:
    _make_folder(folder)
    for part in parts:
        try:
            part.path.rename(folder / part.name)
        except FileNotFoundError as error:
            raise StagedRowsMissing(epoch, part.rows, 0) from error
    write_manifest(folder, epoch, parts)


def _put_back(folder: Path, parts: Sequence[Part]) -> None:
    """Give the files that were gathered their own names again, for another try."""
    for part in parts:
        with suppress(OSError):  # it was not gathered
            (folder / part.name).rename(part.path)


def write_manifest(folder: Path, epoch: Epoch, parts: Sequence[Part]) -> None:
    content: dict[str, object] = {
        "query": epoch.query,
        "batch": epoch.batch,
        "rows": sum(part.rows for part in parts),
        "files": [part.name for part in parts],
    }
    if epoch.checkpoint is not None:
        content["checkpoint"] = epoch.checkpoint
    path = folder / _MANIFEST
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    force_to_disk(path)
    force_to_disk(folder)


def _noted_in(folder: Path, key: str) -> str | None:
    """Return what a folder's manifest says of the stream that its epoch came from.

    None where nobody knows: earlier versions noted no checkpoint, and the data stands
    without its manifest, too.
    """
    try:
        content = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        noted = content.get(key)
    except (OSError, ValueError, AttributeError):
        return None
    return noted if isinstance(noted, str) else None


def _make_folder(path: Path) -> None:
    """Make a folder and those above it, while others may remove empty ones."""
    for _ in range(_MOST_TRIES):
        # It raises if another process removes a folder before the next one is made.
        with suppress(FileNotFoundError):
            path.mkdir(parents=True, exist_ok=True)
            return
    path.mkdir(parents=True, exist_ok=True)


def _changes(folder: Path) -> Iterator[float]:
    """When the folder and whatever is in it were last written to."""
    yield folder.stat().st_mtime
    for path in folder.rglob("*"):
        yield path.stat().st_mtime
