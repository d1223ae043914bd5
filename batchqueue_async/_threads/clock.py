"""The machine's clock and asyncio's `sleep`, also where a test replaces them.

freezegun puts a function of its own in the place of `time.monotonic`, in each module
that has it. That answers with the test's time, or with the machine's if `threading` is
among the nearest callers: so each look at the clock in one wait may get another. A lock
waits by the machine's clock all the same.

A test that puts an `AsyncMock` in the place of `asyncio.sleep`, since its handler waits
before another try, means that one. Who sleeps here in a loop would never let go of the
thread. It is bound in this module, which is always imported: one that is imported later
could bind the mock, for good.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

monotonic: Final = partial(time.monotonic)
"""`time.monotonic`, in a form in which it is not found and replaced."""

sleep: Final = asyncio.sleep
"""`asyncio.sleep`, as it was before any test."""
