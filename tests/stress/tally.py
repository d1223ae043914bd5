"""What became of millions of items, in memory that does not grow with their number."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

FORGOTTEN_AFTER = 200
"""Numbers of one producer and kind: no item is still on its way so long after."""


@dataclass(frozen=True, slots=True)
class Item:
    """The `number`-th of its producer for one kind of one queue."""

    producer: str
    kind: int
    number: int


Key = tuple[str, int]


class Tally:
    """One queue's items: accepted, ended, and what should never be.

    Handlers run on the loop and may see an item before its producer, on a thread, is
    told that it was accepted. So both sides cross numbers out, whoever comes second.
    """

    def __init__(self, *, drops: bool) -> None:
        self._drops = drops
        self._lock = threading.Lock()
        self._accepted: defaultdict[Key, set[int]] = defaultdict(set)
        self._early: defaultdict[Key, set[int]] = defaultdict(set)
        self._perhaps: defaultdict[Key, set[int]] = defaultdict(set)
        self._last: dict[tuple[object, str, int], int] = {}
        self.counts: Counter[str] = Counter()
        self.examples: list[str] = []

    def accepted(self, items: Iterable[Item]) -> None:
        with self._lock:
            for item in items:
                key = item.producer, item.kind
                self.counts["accepted"] += 1
                self._perhaps[key].discard(item.number)
                if item.number in self._early[key]:
                    self._early[key].remove(item.number)
                else:
                    self._accepted[key].add(item.number)

    def perhaps_accepted(self, items: Iterable[Item]) -> None:
        """Of a cancelled `produce_many`: what was placed stays accepted."""
        with self._lock:
            for item in items:
                key = item.producer, item.kind
                if item.number in self._early[key]:
                    self._early[key].remove(item.number)
                else:
                    self._perhaps[key].add(item.number)

    def handled(self, handler: object, batch: list[Item]) -> None:
        with self._lock:
            for item in batch:
                place = handler, item.producer, item.kind
                if item.number <= self._last.get(place, -1):
                    self.bad("reordered", item)
                self._last[place] = item.number
                self._end(item)

    def bad(self, what: str, where: object) -> None:
        """Count what should never be, with some examples."""
        self.counts[what] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{what}: {where}")

    def failed(self, batch: list[Item]) -> None:
        with self._lock:
            for item in batch:
                self._end(item)

    def forget(self, handler: object) -> None:
        """A handler that was replaced gets nothing more."""
        with self._lock:
            self._last = {k: n for k, n in self._last.items() if k[0] is not handler}

    def finish(self, returned: Iterable[Item], dropped: int) -> Counter[str]:
        """Everything has ended: whatever is still open is lost, or doubled.

        Args:
            returned: What the shutdown left.
            dropped: How many the queue says that it displaced.
        """
        self.failed(list(returned))
        for key, numbers in self._accepted.items():
            self.counts["dropped" if self._drops else "lost"] += len(numbers)
            if numbers and not self._drops:
                self.examples.append(f"lost {key}: {sorted(numbers)[:5]}")
        for key, numbers in self._early.items():
            # Ended without having been accepted, or for the second time.
            self.counts["doubled"] += len(numbers)
            if numbers:
                self.examples.append(f"doubled {key}: {sorted(numbers)[:5]}")
        self.counts["lost"] += max(0, self.counts["dropped"] - dropped)
        return self.counts

    def _end(self, item: Item) -> None:
        key = item.producer, item.kind
        self.counts["ended"] += 1
        if item.number in self._accepted[key]:
            self._accepted[key].remove(item.number)
        elif item.number in self._perhaps[key]:
            self._perhaps[key].remove(item.number)
        else:
            self._early[key].add(item.number)
        self._prune(key, item.number)

    def _prune(self, key: Key, number: int) -> None:
        if self._drops and (before := {n for n in self._accepted[key] if n < number}):
            # One kind waits in one partition: the older ones were displaced.
            self.counts["dropped"] += len(before)
            self._accepted[key] -= before
        if len(self._perhaps[key]) > 2 * FORGOTTEN_AFTER:
            self._perhaps[key] = {
                n for n in self._perhaps[key] if n > number - FORGOTTEN_AFTER
            }
