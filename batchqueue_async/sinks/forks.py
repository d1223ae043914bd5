"""Sinks in a forked child: what was open before belongs to the parent."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Protocol


class LeavesToParent(Protocol):
    """What has files, connections or attempts open, which two processes can't share."""

    def leave_to_parent(self) -> Iterable[object]:
        """Forget what is open, in a forked child, and return what may not be closed."""


_watched: weakref.WeakSet[LeavesToParent] = weakref.WeakSet()
# For as long as the child lives: whatever is collected is closed, and to close it would
# write into the parent's file, or take the parent's socket out of its event loop.
_of_parent: list[object] = []


def watch_forks(each: LeavesToParent) -> None:
    """Have each forked child begin with `leave_to_parent`."""
    _watched.add(each)


def _leave_to_parent() -> None:
    for each in [*_watched]:
        _of_parent.extend(each.leave_to_parent())


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)
