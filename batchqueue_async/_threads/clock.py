"""The machine's clock, which waits of threads go by, also where a test fakes the time.

freezegun puts a function of its own in the place of `time.monotonic`, in each module
that has it. That answers with the test's time, or with the machine's if `threading` is
among the nearest callers: so each look at the clock in one wait may get another. A lock
waits by the machine's clock all the same.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

monotonic: Final = partial(time.monotonic)
"""`time.monotonic`, in a form in which it is not found and replaced."""
