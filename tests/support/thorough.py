"""What CI tries and `make test` has no time for: more examples, other Pythons, kills.

`THOROUGH=1 make test` does; so does `.ci/run`.
"""

import os
from zlib import crc32

IS_THOROUGH = os.environ.get("THOROUGH", "0") not in ("", "0")

ONE_IN = 12
"""`make test` looks at one example in so many."""
ONE_IN_THOROUGH = 2
"""CI has 25 minutes, and looks at one in so many; where Hypothesis chooses them, at
others each time."""


def examples(many: int) -> int:
    """Return how many of so many examples to look at."""
    return max(1, many // (ONE_IN_THOROUGH if IS_THOROUGH else ONE_IN))


def is_in_sample(name: str) -> bool:
    """Return whether `make test`, too, looks at what has this name."""
    return crc32(name.encode()) % ONE_IN == 0
