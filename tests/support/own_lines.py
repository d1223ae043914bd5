"""What a test made a queue log, without what a busy machine adds to any log."""

import logging
from collections.abc import Iterable


def own_lines(records: Iterable[logging.LogRecord]) -> list[logging.LogRecord]:
    """Leave out that a call was slow: virtual time stands, but the watch is real."""
    return [each for each in records if "held up the event loop" not in each.msg]
