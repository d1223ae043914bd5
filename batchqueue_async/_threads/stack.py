"""Where a thread is at this moment, for a line of the log."""

from __future__ import annotations

import sys
from traceback import format_stack

_INNERMOST = 8


def stack_of(ident: int | None) -> str:
    """Return the innermost calls of a thread; "" if there is no such thread."""
    frame = None if ident is None else sys._current_frames().get(ident)  # noqa: SLF001
    return "".join(format_stack(frame, limit=_INNERMOST)) if frame else ""
