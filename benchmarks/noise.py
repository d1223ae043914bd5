"""What else the machine was busy with: a measurement says so, or is taken again."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01


@dataclass(frozen=True)
class Reading:
    """CPU time at one moment: everybody's, and this process's own part of it."""

    at: float
    everybody: float | None
    own: float

    @classmethod
    def now(cls) -> "Reading":
        """Look at the clocks."""
        times = os.times()
        own = times.user + times.system + times.children_user + times.children_system
        return cls(time.perf_counter(), _everybody(), own)

    def others_since(self, earlier: "Reading") -> float | None:
        """Return how many cores all other processes used; None where nobody knows."""
        if self.everybody is None or earlier.everybody is None:
            return None
        used = self.everybody - earlier.everybody - (self.own - earlier.own)
        return max(0.0, used / (self.at - earlier.at))


def is_disturbed(others: float | None, seconds: float) -> bool:
    """Whether others may have slowed this sample down.

    They may use 15 % of a core, and two ticks more: the machine's clock is coarse.
    """
    return others is not None and others * seconds > 0.15 * seconds + 2 * _TICK


def _everybody() -> float | None:
    try:
        first, *ticks = _STAT.read_text("ascii").splitlines()[0].split()
    except (OSError, IndexError):
        return None
    assert first == "cpu"
    user, nice, system, _idle, _waiting, hard, soft, stolen = map(int, ticks[:8])
    # Time that a virtual machine's host took counts, too: it is lost here.
    return (user + nice + system + hard + soft + stolen) * _TICK
