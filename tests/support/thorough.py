"""What CI tries and `make test` has no time for: more examples, other Pythons, kills.

`THOROUGH=1 make test` does; so does `.ci/run`.
"""

import os
from zlib import crc32

IS_THOROUGH = os.environ.get("THOROUGH", "0") not in ("", "0")

ONE_IN = 12
"""`make test` looks at one example in so many."""

SWEEPS = (
    "cancel_at_every",
    "interleavings",
    "killed",
    "loops_left_open",
    "process_ends",
    "program_ends",
    "struck",
)
"""In the names of modules that try a fault at many points, each in several variants."""
SWEEP_ONE_IN = 4
"""`make test` looks at one variant in so many."""


def examples(many: int) -> int:
    """Return how many examples to look at: all in CI, else one in `ONE_IN`."""
    return many if IS_THOROUGH else max(1, many // ONE_IN)


def is_in_sample(name: str) -> bool:
    """Return whether `make test`, too, looks at what has this name."""
    return crc32(name.encode()) % ONE_IN == 0


def is_left_to_ci(module: str, variant: str) -> bool:
    """Return whether CI alone looks at this variant of a test, of this module."""
    is_sweep = any(name in module for name in SWEEPS)
    return is_sweep and crc32(variant.encode()) % SWEEP_ONE_IN != 0
