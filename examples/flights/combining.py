"""How an epoch's longest delays go together with those of earlier epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import nlargest

from .database import Partials, Row
from .schema import TOP_COLUMNS
from .stages import TOP_SIZE

# Followed by the two days, written as the database wants its values.
KNOWN_TOP_DELAYS = f"SELECT {', '.join(TOP_COLUMNS)} FROM top_delays WHERE day BETWEEN"


def days_of(partials: Partials) -> tuple[int, int]:
    """Return the first and the last day that an epoch has delays of."""
    days = [day for _, day, *_ in partials.top_delays] or [0]
    return min(days), max(days)


def ranked_anew(known: Iterable[Row], partials: Partials) -> list[Row]:
    """Return the longest delays of both, ranked, for the epoch's days."""
    delays: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for rows in (partials.top_delays, known):
        for kind, day, _, *delay in rows:
            delays[kind, day].append(tuple(delay))
    return [
        (*place, rank, *delay)
        for place, each in delays.items()
        for rank, delay in enumerate(nlargest(TOP_SIZE, each), 1)
    ]
