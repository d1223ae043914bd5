"""Virtual time with a scheduler that is as unfair as asyncio allows, by a seed."""

import asyncio
import random
from collections import deque

from tests.support.virtual_loop import VirtualTimeLoop


class ShuffledLoop(VirtualTimeLoop):
    """Runs ready callbacks in a random order, and lets some of them wait for a turn.

    asyncio runs them first come, first served, but promises nothing of the kind to
    code that awaits. The same seed gives the same order, so a finding comes back.
    """

    _ready: deque[asyncio.Handle]

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)

    def _run_once(self) -> None:
        ready = list(self._ready)
        self._chance.shuffle(ready)
        # At least one runs: with an empty list, time would jump ahead of the others.
        count = self._chance.randint(1, len(ready)) if ready else 0
        self._ready.clear()
        self._ready.extend(ready[:count])
        try:
            super()._run_once()  # type: ignore[misc]
        finally:
            # Also if a callback raises as Ctrl-C does: the loop's end runs the rest.
            self._ready.extend(ready[count:])
