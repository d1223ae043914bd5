"""Checks a handler's methods when it is registered.

Otherwise a mistake would fail the first batch, which may be at night.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, Final

from batchqueue_async._functions import attribute_of, require_function, taker_of
from batchqueue_async._validation import refuse, require_positive

HOOKS: Final = ("on_open", "on_idle", "on_tick", "on_flush", "on_close")
"""The optional methods of a handler."""


def require_handler(field: str, value: object) -> None:
    """Refuse what cannot take a batch, a handler's class, and hooks of a wrong form.

    Warns of a method whose name is nearly that of a hook: nobody would call it.
    """
    consume = attribute_of(value, "consume")
    if isinstance(value, type) and callable(consume):
        refuse(field, "a handler, not its class", value, TypeError)
    if not callable(consume):
        if not callable(value):
            rule = "callable or have a consume method"
            refuse(field, rule, value, TypeError)
        require_batch_function(field, value)
        return
    require_function(f"consume of {field}", consume, 1, "one argument, the batch")
    for name in HOOKS:
        hook = attribute_of(value, name)
        if callable(hook):
            require_function(f"{name} of {field}", hook, 0, "no argument")
    if callable(attribute_of(value, "on_tick")):
        every = attribute_of(value, "tick_every")
        require_positive(f"tick_every of {field}", every)
    _warn_of_misspelt(type(value))


def require_batch_function(field: str, value: object) -> None:
    """Refuse what can't be called with a batch, or would do nothing with it."""
    bases = value.__mro__ if isinstance(value, type) else ()
    if any("__call__" in vars(base) for base in bases):
        # To call the class would only make an object.
        refuse(field, "a handler, not its class", value, TypeError)
    require_function(field, value, 1, "one argument, the batch")


def consume_of(handler: object) -> Callable[[list[Any]], Any]:
    require_handler("handler", handler)
    consume: Callable[[list[Any]], Any] = taker_of(handler)
    return consume


def _warn_of_misspelt(handler: type) -> None:
    for base in handler.__mro__[:-1]:
        for name, value in vars(base).items():
            if name[:2] == "on" and name not in HOOKS and callable(value):
                _warn_if_near(handler, name)


def _warn_if_near(handler: type, name: str) -> None:
    from difflib import get_close_matches  # noqa: PLC0415 - hardly ever needed

    near = get_close_matches(name.lower(), HOOKS, 1, cutoff=0.8)
    if near:
        warn(f"{handler.__qualname__}.{name} is never called: did you mean {near[0]}?")


# Modules that are skipped: `typing` calls a class that has a type in brackets,
# `dataclasses.replace` any class.
_INSIDE: Final = (__name__.partition(".")[0], "typing", "dataclasses")


def warn(message: str) -> None:
    """Warn the first caller that is not the library."""
    frame, level = sys._getframe(1), 2  # noqa: SLF001 - as warnings itself does it
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _INSIDE:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
