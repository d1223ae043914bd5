"""What a user can put right: told in one line, never as a traceback."""

from __future__ import annotations


class Problem(Exception):  # noqa: N818 - it is the user's to solve, not a defect
    """The demo cannot do what it was asked to, and its text says why."""


def first_line(error: BaseException) -> str:
    """Return what an error says, without the pages that may follow it."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
