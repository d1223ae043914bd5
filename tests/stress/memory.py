"""Whether a process grows: samples of its resident set, and a line through them."""

import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
STATM = Path("/proc/self/statm")


def resident_mb() -> float:
    return int(STATM.read_text().split()[1]) * PAGE / 1e6


class Memory:
    """Samples (seconds, MB); the first third is the warm-up."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []

    def sample(self, seconds: float) -> None:
        self._samples.append((seconds, resident_mb()))

    def growth(self) -> tuple[float, float, float]:
        """Return the fitted MB at the start and at the end, and MB per minute."""
        steady = self._samples[len(self._samples) // 3 :]
        if len(steady) < 3:
            return 0.0, 0.0, 0.0
        mean_x = sum(x for x, _ in steady) / len(steady)
        mean_y = sum(y for _, y in steady) / len(steady)
        spread = sum((x - mean_x) ** 2 for x, _ in steady)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in steady) / spread
        first, last = steady[0][0], steady[-1][0]
        at_start = mean_y + slope * (first - mean_x)
        return at_start, mean_y + slope * (last - mean_x), slope * 60
