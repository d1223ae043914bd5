"""Takes samples of several contenders in turns, and disturbed ones once more."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.noise import Reading, is_disturbed

Measure = Callable[[], float]
# Samples that are taken again may cost so much more than a table has planned.
_MOST_RETAKEN = 0.25


@dataclass
class Samples:
    """What came of one contender."""

    values: list[float] = field(default_factory=list)
    disturbed: int = 0

    @property
    def median(self) -> float:
        """What is reported."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The distance from the lowest to the highest, as a part of the median."""
        return (max(self.values) - min(self.values)) / self.median

    def beside(self, other: "Samples") -> float:
        """Return the ratio to the other's values: the median of all turns' ratios.

        What slows the machine down for a while slows down both samples of a turn.
        Medians, of which the ratio could also be taken, may come from different turns.
        """
        pairs = zip(self.values, other.values, strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)

    def beyond(self, other: "Samples") -> float:
        """Return how much more this is than the other's: the median of all turns'."""
        pairs = zip(self.values, other.values, strict=True)
        return statistics.median(mine - theirs for mine, theirs in pairs)


@dataclass
class Turns:
    """How many turns there are, and how the machine was meanwhile."""

    rounds: int
    is_quick: bool = False
    """Nobody warms up, nothing is retaken, and who is slow does not take part."""
    until: float = float("inf")
    """Nothing is retaken after this moment of `time.monotonic`."""

    taken: int = 0
    retaken: int = 0
    disturbed: int = 0
    spreads: list[float] = field(default_factory=list)
    _started: Reading = field(default_factory=Reading.now)

    def take(
        self,
        measures: Mapping[str, Measure],
        *,
        warm_up: bool = True,
        rounds: int | None = None,
    ) -> dict[str, Samples]:
        """Measure everybody in each turn; a turn before the first only warms up."""
        rounds = rounds or self.rounds
        samples = {name: Samples() for name in measures}
        allowed = int(_MOST_RETAKEN * rounds * len(measures)) + 1
        if warm_up and not self.is_quick:
            for measure in measures.values():
                measure()
        there = list(measures.items())
        for turn in range(rounds):
            # Every other turn in reverse, so that nobody is always first, or last.
            for name, measure in reversed(there) if turn % 2 else there:
                value, is_bad = self._sample(measure)
                if is_bad and allowed and self._has_time():
                    allowed -= 1
                    self.retaken += 1
                    value, is_bad = self._sample(measure)
                samples[name].values.append(value)
                samples[name].disturbed += is_bad
        self._book(samples)
        return samples

    def noise(self) -> dict[str, float | None]:
        """Return what is to be said about the machine."""
        spreads = sorted(self.spreads) or [0.0]
        return {
            "others' cores": Reading.now().others_since(self._started),
            "samples": self.taken,
            "retaken": self.retaken,
            "disturbed": self.disturbed,
            "spread, median": statistics.median(spreads),
            "spread, 9 of 10": spreads[int(0.9 * (len(spreads) - 1))],
        }

    def _sample(self, measure: Measure) -> tuple[float, bool]:
        before = Reading.now()
        value = measure()
        after = Reading.now()
        return value, is_disturbed(after.others_since(before), after.at - before.at)

    def _has_time(self) -> bool:
        return not self.is_quick and time.monotonic() < self.until

    def _book(self, samples: Mapping[str, Samples]) -> None:
        self.taken += sum(len(each.values) for each in samples.values())
        self.disturbed += sum(each.disturbed for each in samples.values())
        self.spreads.extend(each.spread for each in samples.values())
