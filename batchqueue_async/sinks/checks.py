"""What a sink takes and refuses: its arguments, its options and its items."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from inspect import Parameter, signature
from typing import Any, Final, NoReturn, ParamSpec, Self, TypeVar

from batchqueue_async._functions import require_sync_function
from batchqueue_async._validation import refuse, require_instance, require_text
from batchqueue_async._wording import kind_of, reason, shown

P = ParamSpec("P")
R = TypeVar("R")

RESERVED: Final = "batchqueue_write"
"""The column of a staging table that says which write a row came with."""
_MOST_LISTED: Final = 20


def refuse_on_conflict(text: str, table: str, error: Exception) -> NoReturn:
    """Raise a ValueError that names the option: the database doesn't know of it."""
    rule = f"the end of an INSERT into {table} that the database takes"
    msg = f"on_conflict must be {rule}, got {shown(text)}: {reason(error)}"
    raise ValueError(msg) from error


def refuse_item(rule: str, item: object, *, but: str = "") -> NoReturn:
    """Raise a ValueError that names the item by its type: it is somebody's data."""
    msg = f"an item must be {rule}, got {kind_of(item)}{but}"
    raise ValueError(msg)


def listed(texts: Sequence[str]) -> str:
    """Return texts as a message lists them: 20, and how many more there are."""
    more = len(texts) - _MOST_LISTED
    told = ", ".join(texts[:_MOST_LISTED])
    return f"{told} and {more} more" if more > 0 else told


def has_fraction(value: Any) -> bool:  # noqa: ANN401 - an item's value is anything
    """Tell a number that is no whole one."""
    if isinstance(value, Decimal):
        return value.is_finite() and value != value.to_integral_value()
    # Floats have it, and numpy's numbers, most of which are no subclasses of float.
    is_integer = getattr(value, "is_integer", None)
    return is_integer is not None and not is_integer()


def has_time(value: object) -> bool:
    """Tell a datetime with a time of the day. The NaT of pandas has none."""
    if not isinstance(value, datetime) or value != value:  # noqa: PLR0124
        return False
    return value.time() != time()


def require_url(field: str, value: object) -> None:
    """Refuse anything but a text; nothing of it is told, since a password is in it."""
    if not isinstance(value, str):
        msg = f"{field} must be a str, got {kind_of(value)}"
        raise TypeError(msg)
    if not value or "\0" in value:
        msg = f"{field} must be a URL, got an empty text or one with a NUL"
        raise ValueError(msg)


def require_name(field: str, value: object) -> None:
    """Refuse anything but a text that is not empty, and that stores can write."""
    require_text(field, value, "a str")
    if not value or "\0" in str(value):
        refuse(field, "a name", value)


def require_path(field: str, value: object) -> None:
    """Refuse anything but a path as a text or an object such as a Path."""
    require_instance(field, value, (str, os.PathLike), "a str or a Path")
    if not str(value) or "\0" in str(value):
        refuse(field, "a path with a name in it", str(value))


def require_file(field: str, value: object) -> None:
    """Refuse anything but a path of a file; SQLite has other names for other things."""
    require_path(field, value)
    if str(value) == ":memory:" or str(value).startswith("file:"):
        rule = "the path of a file, which is there when the process is not any more"
        refuse(field, rule, str(value))


def require_flag(field: str, value: object) -> None:
    """Refuse anything but True and False: the text "false" would mean True."""
    require_instance(field, value, bool, "True or False")


def require_on_conflict(value: object) -> None:
    """Refuse anything but a text; "" is one."""
    require_text("on_conflict", value, "a str")


def require_to_row(value: object) -> None:
    """Refuse anything but a plain function of an item, or None."""
    if value is not None:
        require_sync_function("to_row", value, 1, "one argument, an item")


class FromOptions:
    """Makes a sink of the data source's options, which have its arguments' names."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Make one; what an option's text stands for, its argument's default says.

        Options that nobody would read are refused: most are misspelt. Spark keeps a
        `url` out of its logs and pages, so that the password in it is.
        """
        # The sink's own arguments, also where a subclass has others.
        sink = next(each for each in cls.__mro__ if FromOptions in each.__bases__)
        known = signature(sink).parameters
        for name in options:
            if name not in known:
                what, names = sink.__name__, ", ".join(known)
                msg = f"{what} has the options {names}, got {shown(name)}"
                raise ValueError(msg)
        for name, each in known.items():
            if each.default is each.empty and not options.get(name):
                refuse(name, "given as an option", options.get(name))
        read = {name: _read(name, text, known[name]) for name, text in options.items()}
        return cls(**read)


def _read(name: str, text: str, argument: Parameter) -> object:
    kind = type(argument.default)
    if kind is bool:
        if text.lower() not in {"true", "false"}:
            refuse(name, '"true" or "false"', text)
        return text.lower() == "true"
    if kind is int:
        if not text.isdecimal():
            refuse(name, "a whole number", text)
        return int(text)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            refuse(name, "a number of seconds", text)
    return text


def require_columns(
    value: object, *, fold: Callable[[str], str] = lambda name: name
) -> None:
    """Refuse anything but names of columns, each once when they are folded."""
    # A text would pass as a sequence of names of one letter each.
    if isinstance(value, str) or not isinstance(value, list | tuple):
        refuse("columns", "a list or tuple of names", value, TypeError)
    for column in value:
        require_name("columns", column)
    names = {fold(column) for column in value}
    if not value or len(names) < len(value):
        refuse("columns", "one name or more, each once", value)
    if RESERVED in names:
        refuse("columns", f"other names than {RESERVED}, the staged rows' own", value)


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take arguments by their old names, too, with a warning."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def taking_both(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                msg = (
                    f"{old} is called {new} now; version 0.3 won't know {old} any more"
                )
                warnings.warn(msg, DeprecationWarning, stacklevel=2)
                if new in kwargs:
                    msg = f"{new} must be given once, got it as {old}, too"
                    raise TypeError(msg)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return taking_both

    return decorated
