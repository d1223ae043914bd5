"""Whether it is worthwhile to let items gather before the next cycle.

Fast producers on threads would get tiny batches if each of their items were taken at
once. But a lone item waits in vain: whoever sent it may wait for its being handled
before he sends another.
"""

from __future__ import annotations

# Lone items in quick succession after which gathering is tried, and how rare a try may
# become where it is in vain.
_FIRST_TRY = 16
_RAREST_TRY = 4096


class Gathering:
    """Learns from what cycles delivered.

    It pays after a cycle that delivered several items. After lone items it is tried
    where they follow each other more quickly than a shortest nap; each try in vain
    makes the next one rarer, so that a request and its answer are not held up.
    """

    __slots__ = (
        "_is_tried",
        "_last_started",
        "_lone",
        "_next_try",
        "_shortest",
        "pays",
    )

    def __init__(self, shortest: float) -> None:
        self._shortest = shortest
        self._last_started = 0.0
        self._lone = 0
        self._next_try = _FIRST_TRY
        self._is_tried = False
        self.pays = False

    def delivered(self, items: int, started: float) -> None:
        """Note what a cycle delivered that started at this time of the loop."""
        is_quick = started - self._last_started < self._shortest
        self._last_started = started
        if items > 1:
            self.pays = True
            self._is_tried = False
            self._lone = 0
            self._next_try = _FIRST_TRY
            return
        if self._is_tried:
            self._next_try = min(2 * self._next_try, _RAREST_TRY)
        self._lone = self._lone + 1 if is_quick else 0
        self.pays = self._is_tried = self._lone >= self._next_try
        if self.pays:
            self._lone = 0
