"""What a full partition means for its producer."""

from __future__ import annotations

from enum import Enum


class WhenFull(Enum):
    """What happens to an item whose partition is full."""

    WAIT = "wait"
    """`produce` waits for room, in order of arrival: nothing is lost, and a slow
    handler slows its producers. `produce_nowait` returns False."""

    DROP_NEWEST = "drop newest"
    """The new item is refused: `produce` returns False at once, and the item counts
    as rejected. What waits already is kept."""

    DROP_OLDEST = "drop oldest"
    """The new item is accepted and the longest-waiting one gives way: it was accepted
    before, is lost now, and counts as dropped. Its producer isn't told."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"
