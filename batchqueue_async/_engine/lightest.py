"""Finds the partition with the least to carry, for the next type."""

from __future__ import annotations

import heapq

from batchqueue_async._policies.weights import Exact

_Rank = tuple[int, Exact, int, int]


class Lightest:
    """Weights and numbers of types, by partition, and which has the least of them."""

    __slots__ = ("_ranks", "types", "weights")

    def __init__(self) -> None:
        self.weights: list[Exact] = []
        self.types: list[int] = []
        self._ranks: list[_Rank] = []

    def grow(self, count: int) -> None:
        """Know of so many partitions."""
        for index in range(len(self.types), count):
            self.weights.append(0)
            self.types.append(0)
            self._push(index)

    def book(self, index: int, types: int, weight: Exact = 0) -> None:
        """So many types more, or less, and so much weight are a partition's."""
        self.types[index] += types
        self.weights[index] += weight
        self._push(index)

    def find(self) -> int:
        """Return the lightest; whoever asked books something to it."""
        # Ranks are pushed at each change and not removed: skip outdated ones.
        while self._ranks:
            rank = self._ranks[0]
            if rank == self._rank(rank[-1]):
                return rank[-1]
            heapq.heappop(self._ranks)
        # A Ctrl-C came before the last change's was pushed.
        self._rank_all()
        return self._ranks[0][-1]

    def _rank(self, index: int) -> _Rank:
        # Empty ones first; then by weight, and by types where weights are equal.
        types = self.types[index]
        return (min(types, 1), self.weights[index], types, index)

    def _push(self, index: int) -> None:
        if len(self._ranks) < 1.5 * len(self.types) + 16:
            heapq.heappush(self._ranks, self._rank(index))
        else:
            # Amortised: a third of them are outdated.
            self._rank_all()

    def _rank_all(self) -> None:
        ranks = [self._rank(each) for each in range(len(self.types))]
        heapq.heapify(ranks)
        self._ranks = ranks
