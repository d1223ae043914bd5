"""What CI tries and `make test` has no time for: more examples, other Pythons, kills.

`THOROUGH=1 make test` does; so does `.ci/run`.
"""

import os

IS_THOROUGH = os.environ.get("THOROUGH", "0") not in ("", "0")


def examples(many: int) -> int:
    """Return how many examples to look at: all in CI, else a fifth."""
    return many if IS_THOROUGH else max(1, many // 5)
