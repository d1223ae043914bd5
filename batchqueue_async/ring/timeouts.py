"""Which timeouts a ring accepts: checked when given, before anything happens."""

from __future__ import annotations

import sys

from .errors import InvalidArgument


def require_timeout(field: str, value: object) -> None:
    """Refuse anything but None, for no limit, or a finite number of seconds >= 0.

    Raises:
        InvalidArgument: It is a number out of range.
        TypeError: It is no number.
    """
    if value is None:
        return
    rule = "a number of seconds >= 0, or None for no limit"
    msg = f"{field} must be {rule}, got {value!r}"
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(msg)
    # As one comparison: nan is in no range, and a huge int fits into no float.
    if not 0 <= value <= sys.float_info.max:
        raise InvalidArgument(msg)
