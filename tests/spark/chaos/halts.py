"""Points at which a process under test stops and waits to be killed.

The harness arms a point; the first process that gets there takes the order, whichever
process that is, tells its pid and waits. Files in one folder do it: they reach every
process, and renaming one is atomic.
"""

import asyncio
import os
import time
from pathlib import Path

FOLDER = "CHAOS_HALTS"
"""The environment variable that names the folder; without it nothing ever stops."""

LONGEST = 120.0
"""Then a process goes on by itself: the harness is dead."""

_POLL = 0.01


class Halts:
    """The harness's side: arm a point, see who came, let it go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def arm(self, point: str) -> None:
        """The next process at this point stops there."""
        (self.folder / f"{point}.armed").touch()

    def halted(self, point: str) -> int | None:
        """The pid of the process that stands there, or None."""
        for halted in self.folder.glob(f"{point}.halted-*"):
            return int(halted.name.rpartition("-")[2])
        return None

    def release(self) -> None:
        """Disarm all points, and let go who still stands there."""
        for file in self.folder.iterdir():
            file.unlink(missing_ok=True)


def halt(point: str) -> None:
    """Stop here if the harness has armed this point."""
    if (halted := _take(point)) is not None:
        deadline = time.monotonic() + LONGEST
        while halted.exists() and time.monotonic() < deadline:
            time.sleep(_POLL)


async def async_halt(point: str) -> None:
    """The same without stopping the event loop."""
    if (halted := _take(point)) is not None:
        deadline = time.monotonic() + LONGEST
        while halted.exists() and time.monotonic() < deadline:  # noqa: ASYNC110  # files
            await asyncio.sleep(_POLL)


def _take(point: str) -> Path | None:
    folder = os.environ.get(FOLDER)
    if folder is None:
        return None
    halted = Path(folder, f"{point}.halted-{os.getpid()}")
    try:
        Path(folder, f"{point}.armed").rename(halted)
    except FileNotFoundError:
        return None
    return halted
