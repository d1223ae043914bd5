"""What a sink refuses of its arguments, its options and its items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn

from batchqueue_async._validation import refuse
from batchqueue_async._wording import kind_of, shown

RESERVED: Final = "batchqueue_write"
"""The column of a staging table that says which write a row came with."""


def refuse_item(rule: str, item: object, *, but: str = "") -> NoReturn:
    """Raise a ValueError that names the item by its type: it is somebody's data."""
    msg = f"an item must be {rule}, got {kind_of(item)}{but}"
    raise ValueError(msg)


def has_fraction(value: Any) -> bool:  # noqa: ANN401 - an item's value is anything
    """Tell a number that is no whole one."""
    if isinstance(value, Decimal):
        return value.is_finite() and value != value.to_integral_value()
    # A float's, and those of numpy's, which are none of Python's but one.
    is_integer = getattr(value, "is_integer", None)
    return is_integer is not None and not is_integer()


def require_url(field: str, value: object) -> None:
    """Refuse anything but a text; nothing of it is told, since a password is in it."""
    if not isinstance(value, str):
        msg = f"{field} must be a str, got {kind_of(value)}"
        raise TypeError(msg)
    if not value or "\0" in value:
        msg = f"{field} must be a URL, got an empty text or one with a NUL"
        raise ValueError(msg)


def require_name(field: str, value: object) -> None:
    """Refuse anything but a text that is not empty."""
    if not isinstance(value, str):
        refuse(field, "a str", value, TypeError)
    if not value or "\0" in value:
        refuse(field, "a name", value)


def arguments_of(
    what: str,
    options: Mapping[str, str],
    readers: Mapping[str, Callable[[str, str], object]],
    required: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a sink's arguments of the data source's options, which have their names.

    Options that nobody would read are refused: most are misspelt.
    """
    for name in options:
        if name not in readers:
            msg = f"{what} has the options {', '.join(readers)}, got {shown(name)}"
            raise ValueError(msg)
    for name in required:
        if not options.get(name):
            refuse(name, "given as an option", options.get(name))
    given = {name: read for name, read in readers.items() if name in options}
    return {name: read(name, options[name]) for name, read in given.items()}


def text_of(_: str, text: str) -> str:
    """Return an option's text as it is."""
    return text


def count_of(field: str, text: str) -> int:
    """Return the whole number that an option's text stands for."""
    if not text.isdecimal():
        refuse(field, "a whole number", text)
    return int(text)


def seconds_of(field: str, text: str) -> float:
    """Return the number that an option's text stands for."""
    try:
        return float(text)
    except ValueError:
        refuse(field, "a number of seconds", text)


def flag_of(field: str, text: str) -> bool:
    """Return what an option's text stands for, in whatever case."""
    if text.lower() not in {"true", "false"}:
        refuse(field, '"true" or "false"', text)
    return text.lower() == "true"


def require_columns(
    value: object, *, fold: Callable[[str], str] = lambda name: name
) -> None:
    """Refuse anything but names of columns, each of them once.

    Args:
        value: The names.
        fold: Makes the same of names that the database takes for the same.
    """
    # A text is a sequence of names of one letter, too: surely a mistake.
    if isinstance(value, str) or not isinstance(value, list | tuple):
        refuse("columns", "a list or tuple of names", value, TypeError)
    for column in value:
        require_name("columns", column)
    names = {fold(column) for column in value}
    if not value or len(names) < len(value):
        refuse("columns", "one name or more, each once", value)
    if RESERVED in names:
        refuse("columns", f"other names than {RESERVED}, the staged rows' own", value)
