"""How a wrong argument is refused: the field, the rule and the value."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import NoReturn

from batchqueue_async._wording import shown


def refuse(
    field: str, rule: str, got: object, error: type[Exception] = ValueError
) -> NoReturn:
    """Raise `error` with "<field> must be <rule>, got <got>", shown as a setting."""
    msg = f"{field} must be {rule}, got {shown(got)}"
    raise error(msg)


def require_int(
    field: str, value: object, *, at_least: int, at_most: int | None = None
) -> None:
    """Refuse anything but an int from `at_least` to `at_most`; a bool is no int."""
    if not isinstance(value, int) or isinstance(value, bool):
        refuse(field, "an int", value, TypeError)
    if value < at_least:
        refuse(field, f">= {at_least}", value)
    if at_most is not None and value > at_most:
        refuse(field, f"<= {at_most}", value)


def require_at_least(field: str, value: object, minimum: float) -> None:
    """Refuse anything but a finite number of `minimum` or more."""
    if _finite(field, value) < minimum:
        refuse(field, f">= {minimum}", value)


def require_positive(field: str, value: object) -> None:
    """Refuse anything but a finite number above zero."""
    if _finite(field, value) <= 0:
        refuse(field, "> 0", value)


def require_timeout(
    field: str, value: object, error: type[Exception] = ValueError
) -> None:
    """Refuse anything but None, for no limit, or a finite number of seconds >= 0.

    Infinity is refused, too: timers cannot be set to it, and None says the same.
    """
    if value is None:
        return
    rule = "a number of seconds >= 0, or None for no limit"
    if not isinstance(value, int | float) or isinstance(value, bool):
        refuse(field, rule, value, TypeError)
    # As one comparison: nan is in no range, and a huge int fits into no float.
    if not 0 <= value <= sys.float_info.max:
        refuse(field, rule, value, error)


def require_instance(
    field: str, value: object, kind: type | tuple[type, ...], rule: str
) -> None:
    """Refuse a value of the wrong kind."""
    if not isinstance(value, kind):
        refuse(field, rule, value, TypeError)


def require_iterable(field: str, value: object, rule: str) -> None:
    """Refuse a single value where several are meant."""
    require_instance(field, value, Iterable, rule)


def require_text(field: str, value: object, rule: str) -> None:
    """Refuse anything but a str that can be written, as metrics and logs do."""
    require_instance(field, value, str, rule)
    try:
        str(value).encode()
    except UnicodeEncodeError:
        refuse(field, "text that UTF-8 can write, without surrogates", value)


def require_callable(field: str, value: object) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        refuse(field, "callable", value, TypeError)


def _finite(field: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        refuse(field, "a number", value, TypeError)
    try:
        is_finite = math.isfinite(value)
    except OverflowError:
        # An int for which no float is large enough; its digits would fill pages.
        refuse(field, "finite as a float", f"{int(value).bit_length()} bits")
    if not is_finite:
        refuse(field, "finite", value)
    return value
