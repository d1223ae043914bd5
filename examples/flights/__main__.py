"""`python -m examples.flights`: a year of real flights through the queues."""

from __future__ import annotations

import sys

from .options import Options, parse_options


def main() -> int:
    """Run the demo; returns its exit status."""
    options = parse_options()
    try:
        return _run(options)
    except KeyboardInterrupt:
        return 130


def _run(options: Options) -> int:
    # Spark's client takes a second to import: not for --help or a mistyped option.
    from batchqueue_async.spark.java import JavaMissingError  # noqa: PLC0415

    from .problems import ItemsLost, Problem  # noqa: PLC0415
    from .running import DIFFERENT, run  # noqa: PLC0415

    try:
        return run(options)
    except (Problem, JavaMissingError) as problem:
        print(f"flights: {problem}", file=sys.stderr)
        return 2
    except ItemsLost as lost:
        print(f"flights: items were lost: {lost}", file=sys.stderr)
        return DIFFERENT


if __name__ == "__main__":
    sys.exit(main())
