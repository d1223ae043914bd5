"""What ends the demo with one line instead of a traceback."""

from __future__ import annotations


class Problem(Exception):
    """The demo cannot do what it was asked to, and its text says why."""


class ItemsLost(Exception):
    """Events were accepted and did not end in the database or the file."""


def first_line(error: BaseException) -> str:
    """Return what an error says, without the pages that may follow it."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
