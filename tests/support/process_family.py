"""Finds and ends processes by a mark in their environment (Linux)."""

import os
import signal
import time
import uuid
from pathlib import Path

MARK = "BATCHQUEUE_TEST_FAMILY"
PROC = Path("/proc")


class ProcessFamily:
    """The processes started with `environment`, and all that they started.

    The mark is inherited, so that it also finds what was re-parented: the executor of
    a killed worker, the JVM of a killed driver. Parentage would lose them.
    """

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex

    def environment(self) -> dict[str, str]:
        """This process's environment with the mark."""
        return {**os.environ, MARK: self.mark}

    def pids(self, *words: str) -> list[int]:
        """The living ones whose command line has all these words."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for folder in PROC.iterdir():
            if not folder.name.isdecimal():
                continue
            try:
                if mark not in (folder / "environ").read_bytes().split(b"\0"):
                    continue
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue  # it has just ended
            if all(word.encode() in command for word in words):
                found.append(int(folder.name))
        return sorted(found)

    def kill(self, *words: str) -> list[int]:
        """SIGKILL those with these words in their command lines, once."""
        pids = self.pids(*words)
        for pid in pids:
            kill(pid)
        return pids

    def wait_gone(self, timeout: float) -> bool:
        """Wait until none is left; False if some still are."""
        deadline = time.monotonic() + timeout
        while self.pids():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def end(self, timeout: float = 20.0) -> None:
        """SIGKILL all of them, again and again until none is left.

        Raises:
            RuntimeError: Some survive.
        """
        deadline = time.monotonic() + timeout
        # Again, because one that dies may have started another in the meantime.
        while self.kill() or self.pids():
            if time.monotonic() > deadline:
                msg = f"processes survive: {self.pids()}"
                raise RuntimeError(msg)
            time.sleep(0.05)


def kill(pid: int) -> bool:
    """SIGKILL it; False if it was gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def parent_of(pid: int) -> int | None:
    """The parent's pid, or None if the process is gone."""
    try:
        status = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name stands in parentheses and may contain anything.
    return int(status.rpartition(")")[2].split()[1])
