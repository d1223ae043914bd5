"""What a test made a queue log, without what a busy machine adds to any log."""

import logging
from collections.abc import Iterable


def own_lines(records: Iterable[logging.LogRecord]) -> list[logging.LogRecord]:
    """Leave out warnings of slow calls: even in virtual time their clock is real."""
    return [each for each in records if "held up the event loop" not in each.msg]
