"""How the machines run: the same examples every time, unless asked to explore.

`PROPERTY_EXAMPLES=5000 pytest tests/properties` looks at other, and more, examples;
what it finds, it prints with a line that reproduces it.
"""

import os

from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))


def profile(examples: int, steps: int, *, shrinks: bool = True) -> settings:
    """Return settings for one machine; `shrinks=False` stops at the first finding."""
    phases = [Phase.generate, Phase.shrink] if shrinks else [Phase.generate]
    return settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=steps,
        derandomize=not EXAMPLES,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        deadline=None,
        phases=phases,
        # What an example takes is bounded by its steps, and the test by its timeout.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
