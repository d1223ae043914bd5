"""How a sink refuses a wrong argument: the field, the rule and the value."""

from __future__ import annotations

from typing import NoReturn

from batchqueue_async._wording import shown


def refuse(
    field: str, rule: str, got: object, error: type[Exception] = ValueError
) -> NoReturn:
    """Raise `error` with "<field> must be <rule>, got <got>"."""
    msg = f"{field} must be {rule}, got {shown(got)}"
    raise error(msg)


def require_name(field: str, value: object) -> None:
    """Refuse anything but a text that is not empty."""
    if not isinstance(value, str):
        refuse(field, "a str", value, TypeError)
    if not value or "\0" in value:
        refuse(field, "a name", value)


def require_count(field: str, value: object, *, at_least: int) -> None:
    """Refuse anything but an int of `at_least` or more; a bool is no int."""
    if not isinstance(value, int) or isinstance(value, bool):
        refuse(field, "an int", value, TypeError)
    if value < at_least:
        refuse(field, f">= {at_least}", value)


def require_columns(value: object) -> None:
    """Refuse anything but names of columns, each of them once."""
    # A text is a sequence of names of one letter, too: surely a mistake.
    if isinstance(value, str) or not isinstance(value, list | tuple):
        refuse("columns", "a list or tuple of names", value, TypeError)
    for column in value:
        require_name("columns", column)
    if not value or len(set(value)) < len(value):
        refuse("columns", "one name or more, each once", value)
