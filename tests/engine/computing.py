"""Handlers for processes of their own, which need not import pytest for them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


def store_pid(batch: list[Path]) -> None:
    """Write the process's number and the time span into each of the files."""
    began = time.time()
    time.sleep(0.1)
    for path in batch:
        path.write_text(f"{os.getpid()} {began} {time.time()}")


async def _generated(batch: list[Path]) -> AsyncIterator[Path]:
    for each in batch:
        yield each


def runs_nothing(batch: list[Path]) -> object:
    """Only make an asynchronous generator, which nobody runs."""
    return _generated(batch)


class Switched:
    """A hook that is turned off, and an attribute with the name of a method."""

    on_open = None
    consume = True

    def __call__(self, batch: list[Path]) -> None:
        for path in batch:
            path.touch()


class NeedsTwo(Exception):
    """Can be pickled, and not be made again of that."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} {two}")


class BecomesNone(Exception):
    """Can be pickled, and comes back as something else."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(None), ()


@dataclass(frozen=True)
class Frozen(Exception):
    """Takes no note, and none of its attributes can be set."""


ERRORS: Final = {
    "raise frozen": Frozen(),
    "raise": KeyError("raise"),
    "raise odd": NeedsTwo(1, 2),
    "raise none": BecomesNone(),
    "raise without stdout": KeyError("raise without stdout"),
}


class Handler:
    """Does what its items say, and notes each call in a file."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes
        self.batches = 0

    def note(self, what: str) -> None:
        with self.notes.open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def on_open(self) -> None:
        self.note("on_open")

    def on_flush(self) -> None:
        self.note(f"on_flush after {self.batches}")

    def on_close(self) -> None:
        self.note(f"on_close after {self.batches}")

    def consume(self, batch: list[str]) -> None:
        self.note("consume")
        self.batches += 1
        for item in batch:
            if item == "raise without stdout":
                sys.stdout = None
            if item in ERRORS:
                raise ERRORS[item]
            if item == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if item == "die namelessly":
                os.kill(os.getpid(), signal.SIGRTMIN + 1)
            if item == "exit":
                os._exit(3)
            if item == "hang":
                time.sleep(3600.0)
            if item == "fork" and (child := os.fork()):
                os.waitpid(child, 0)
            if item in {"fork and die", "start and die"}:
                self.note_another(item)
                os.kill(os.getpid(), signal.SIGKILL)

    def note_another(self, how: str) -> None:
        """Have another process outlive this one, with all that it may inherit."""
        if how == "start and die":
            another = subprocess.Popen(["sleep", "600"], close_fds=False).pid
        elif (another := os.fork()) == 0:
            time.sleep(600.0)
            os._exit(0)
        (self.notes.parent / "another").write_text(str(another))


class HangsInFlush(Handler):
    def on_flush(self) -> None:
        self.note("on_flush")
        time.sleep(3600.0)
