"""What a message shows of a value: one rule for errors, logs and reprs.

* A setting is shown, so that its mistake can be found: a plain value by its shortened
  repr, with passwords and the like replaced; anything else by its type, since nobody
  knows what its repr would tell.
* Data is not shown: an item, a row, one of its values, what a function made of it. It
  is named by its type, and where that helps by its column.
* A secret, such as a database's URL, is named by its type, too.
* An error of somebody else's is shown by its type and its text, shortened like a
  setting's.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from types import GenericAlias, TracebackType, UnionType
from typing import Any, Final

_LONGEST: Final = 200
# More than is shown, so that the end of a password isn't cut off before it is found.
_LOOKED_AT: Final = 20 * _LONGEST
members_of: Final = vars(BaseExceptionGroup)["exceptions"].__get__
"""What is in a group of errors, whatever its class makes of that attribute."""
_IN_URLS = r"://\S*@"
# Texts come from anywhere, and are looked at on the loop: without `\w*` in front, and
# with nothing given back (`*+`), a word of 4,000 letters is no work.
_IN_PAIRS = (
    r"(?i)((?:passw|pwd|secret|token|api_?key|credential)\w*+['\"]?\s*+[=:]\s*+)"
    r"('[^']*'?|\"[^\"]*\"?|[^\s,;&]+)"
)


def shown(setting: object) -> str:
    """Return how a message shows a setting: bounded, without secrets, never raising."""
    try:
        return _Settings().repr(setting)
    except Exception:  # noqa: BLE001 - a user's class may do anything
        return kind_of(setting)


def kind_of(value: object) -> str:
    """Return how a message shows data and secrets: "an int", "a Sale"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def reason(error: BaseException) -> str:
    """Return how a message shows what somebody else raised; never raising."""
    # Not the error's repr, which may have more: a UnicodeEncodeError's has all text.
    text = _cut(without_secrets(text_of(error)))
    if isinstance(error, BaseExceptionGroup):
        # Of itself it says how many there are, and of none what it is.
        text = f"{text}, such as {reason(next(errors_in(error)))}"
    return f"{type(error).__name__}({repr(text) if text else ''})"


def errors_in(error: BaseException) -> Iterator[BaseException]:
    """Return the error, or those of a group (a `TaskGroup` raises one), in order."""
    left = [error]
    while left:
        each = left.pop()
        if isinstance(each, BaseExceptionGroup):
            left += reversed(members_of(each))
        else:
            yield each


def text_of(error: BaseException) -> str:
    """Return an error's text; "" if it has none, or can't be asked for it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's class may do anything
        return ""


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return an error's traceback, whatever its class makes of that attribute."""
    found: TracebackType | None = vars(BaseException)["__traceback__"].__get__(error)
    return found


def add_note(error: BaseException, note: str) -> None:
    """Add a note, if the error's class lets one: a frozen dataclass doesn't."""
    with suppress(Exception):
        error.add_note(note)


def without_secrets(text: str) -> str:
    """Return the text's beginning, what looks like a password replaced by `***`."""
    text = text[:_LOOKED_AT]
    if "@" in text:
        text = re.sub(_IN_URLS, "://***@", text)
    return re.sub(_IN_PAIRS, r"\1***", text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class _Settings(reprlib.Repr):
    """Shows plain values, and the library's own, whose reprs are known."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxother = self.maxlong = _LONGEST

    def repr_str(self, x: str, level: int) -> str:
        return self._text(x, len(x))

    def repr_bytes(self, x: bytes, level: int) -> str:
        text = x[:_LOOKED_AT].decode("utf-8", "backslashreplace")
        return f"b{self._text(text, len(x))}"

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        # No setting is a dict: it is data, or has a connection's options.
        return kind_of(x)

    def repr_instance(self, x: Any, level: int) -> str:  # noqa: ANN401
        if x is None or isinstance(x, bool | complex | float):
            return repr(x)
        if isinstance(x, Enum):
            return f"{type(x).__name__}.{x.name}"
        if isinstance(x, BaseException):
            return reason(x)
        # Also `by_key(itemgetter(1))`, and types of all kinds.
        known = type(x).__module__.startswith(
            ("batchqueue_async.", "operator", "typing")
        )
        if known or isinstance(x, type | GenericAlias | UnionType):
            return _cut(without_secrets(repr(x)))
        if callable(x) and hasattr(x, "__qualname__"):
            return f"the function {x.__qualname__}"
        return kind_of(x)

    def _text(self, text: str, length: int) -> str:
        text = without_secrets(text)
        cut = _cut(text)
        return repr(cut) if length <= _LONGEST else f"{cut!r} ({length} in all)"
