"""Closes and empties a queue in a forked child.

The parent still has the items; a child that handled them, too, would double them. Locks
and the loop may be in any state in the child, so neither is touched.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """Something that a forked child must not use."""

    def abandon(self) -> None:
        """Close and empty it, in the child."""


_started: weakref.WeakSet[Inherited] = weakref.WeakSet()
# In a child: what was started in its parent, also what had ended there.
_abandoned: weakref.WeakSet[Inherited] = weakref.WeakSet()


def abandon_after_fork(started: Inherited) -> None:
    """Have `started` abandoned in every child that is forked from now on."""
    _started.add(started)


def is_abandoned(started: Inherited) -> bool:
    """Whether it was started in the process that this one was forked from."""
    return started in _abandoned


def _abandon_all() -> None:
    for each in list(_started):
        each.abandon()
        _abandoned.add(each)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
