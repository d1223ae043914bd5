"""How much is measured: all of it, or a sketch in less than a minute."""

import asyncio
import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@dataclass(frozen=True)
class Scale:
    """One run's extent."""

    is_quick: bool = False

    def of(self, full: T, quick: T) -> T:
        """Return what this extent asks for."""
        return quick if self.is_quick else full

    def items(self, count: int) -> int:
        """Return how many items to use instead of `count`; enough to fill a queue."""
        return min(count, max(25_000, count // 4)) if self.is_quick else count

    def calls(self, count: int) -> int:
        """Return how many calls to use for slow ones, with which no queue gets full."""
        return count // 5 if self.is_quick else count


def loops() -> dict[str, LoopFactory]:
    """Return the event loops that are installed."""
    found: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop"):
        found["uvloop"] = importlib.import_module("uvloop").new_event_loop
    return found
