"""The folders that attempts write to before they are published, and their end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from .attempts import prefix
from .epochs import Epoch

# Seconds after which what nobody has written to died with its driver.
_KEPT = 7 * 24 * 3600.0
# Of folders that are being deleted; who deletes them may die meanwhile.
_OVER = "over-"
_MOST_TRIES = 100


class ParquetStaging:
    """A folder for each epoch, and in it one for each run.

    What ends is renamed before it is deleted: who holds one of its files open can't
    give it its name any more, and who comes later finds no folder.

    Args:
        folder: Where all of them are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folder(self, epoch: Epoch, run: str) -> Path:
        """Return where the run's attempts at the epoch write."""
        return self._of(epoch) / quote(run, safe="")

    def remove(self, epoch: Epoch) -> None:
        """Delete what is staged for an epoch that is published, of whatever run."""
        self._delete(self._of(epoch))

    def remove_run(self, epoch: Epoch, run: str) -> None:
        """Delete what one run has staged for the epoch, and nothing of another's."""
        self._delete(self.folder(epoch, run))
        with suppress(OSError):  # others are at work in it, or it was never made
            self._of(epoch).rmdir()

    def remove_old(self) -> None:
        """Delete what died with its driver: nobody has written to it for 7 days."""
        oldest = time.time() - _KEPT
        with suppress(OSError):
            for folder in list(self._folder.iterdir()):
                if folder.name.startswith(_OVER) or all(
                    changed < oldest for changed in _changes(folder)
                ):
                    self._delete(folder)

    def _delete(self, folder: Path) -> None:
        doomed = self._folder / f"{_OVER}{uuid4().hex}"
        try:
            folder.rename(doomed)
        except FileNotFoundError:
            return
        shutil.rmtree(doomed, ignore_errors=True)

    def _of(self, epoch: Epoch) -> Path:
        return self._folder / prefix(epoch)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, while others may remove empty ones.

    Raises:
        OSError: It can't be made.
    """
    for _ in range(_MOST_TRIES):
        # Not found: somebody was quicker between one folder and the next.
        with suppress(FileNotFoundError):
            path.mkdir(parents=True, exist_ok=True)
            return
    path.mkdir(parents=True, exist_ok=True)


def _changes(folder: Path) -> Iterator[float]:
    """When the folder and whatever is in it were last written to."""
    yield folder.stat().st_mtime
    for path in folder.rglob("*"):
        yield path.stat().st_mtime
