"""Checks a function that is passed in when it is passed.

Otherwise a mistake would fail its first call, which may be at night.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from batchqueue_async._validation import refuse

_GENERATORS: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

_NOBODY_HAS: Final = "an_attribute_that_nobody_has"


def attribute_of(owner: object, name: str, otherwise: object = None) -> Any:  # noqa: ANN401
    """Return an attribute that is optional, such as a hook of a handler.

    A stand-in that makes up whatever it is asked for, as a `Mock` does, has what was
    set, and what its `spec` has: nobody meant it to have all hooks at once.
    """
    # Asked first, since a `Mock` keeps what it has made up once.
    if hasattr(owner, _NOBODY_HAS) and name not in dir(owner):
        return otherwise
    return getattr(owner, name, otherwise)


def taker_of(handler: object) -> Any:  # noqa: ANN401 - a callable of a user's
    """Return what takes a handler's batches: its `consume`, else the handler itself.

    A callable may have an attribute of that name which is something else.
    """
    consume = attribute_of(handler, "consume")
    return consume if callable(consume) else handler


def name_of(call: object) -> str:
    """Return the name of a function, or of the class of what is called like one."""
    # A stand-in may make up a name, which is no text then, and for `xmlrpc` a call.
    name = getattr(call, "__qualname__", None)
    is_text = issubclass(type(name), str)
    return str(name) if is_text else type(call).__qualname__


def is_async(call: object) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - what kind it is, not whether
    )


def require_arguments(field: str, call: object, arguments: int, told: str) -> None:
    """Refuse what can't be called with so many arguments, which are `told` as such.

    What is written in C, and says nothing of its arguments, is accepted.
    """
    if not takes(call, arguments):
        refuse(field, f"callable with {told}", call, TypeError)


def takes(call: object, arguments: int) -> bool:
    """Whether it can be called with so many arguments, as far as that can be known."""
    if not callable(call):
        return False
    code, given = _code_of(call, arguments)
    # Faster than `_binds` by far: there may be thousands of handlers.
    is_plain = (
        code is not None and code.co_argcount == given and not code.co_kwonlyargcount
    )
    return is_plain or _binds(call, arguments)


def require_function(field: str, call: object, arguments: int, told: str) -> None:
    """Refuse a generator function, too: nobody would run what it returns."""
    if is_generator_function(call):
        refuse(field, "no generator function", call, TypeError)
    require_arguments(field, call, arguments, told)


def is_generator_function(call: object) -> bool:
    """Whether a call would only make a generator, of either kind."""
    inner = call
    while isinstance(inner, partial):
        inner = inner.func
    code, _ = _code_of(inner, 0)
    return code is not None and code.co_flags & _GENERATORS != 0


def require_sync_function(field: str, call: object, arguments: int, told: str) -> None:
    """Refuse an async function, too: what it returns is wanted at once."""
    require_function(field, call, arguments, told)
    if is_async(call):
        refuse(field, "a plain function, not an async one", call, TypeError)


def _code_of(call: object, arguments: int) -> tuple[CodeType | None, int]:
    """Return a function's code, and how many arguments it gets, a `self` included."""
    if isinstance(call, MethodType) and isinstance(call.__func__, FunctionType):
        return call.__func__.__code__, arguments + 1
    if isinstance(call, FunctionType):
        return call.__code__, arguments
    method = getattr(type(call), "__call__", None)  # noqa: B004 - what, not whether
    if isinstance(method, FunctionType):
        return method.__code__, arguments + 1
    return None, 0


def _binds(call: Callable[..., Any], arguments: int) -> bool:
    try:
        # What is called counts, not what a decorator has wrapped.
        signature = inspect.signature(call, follow_wrapped=False)
    except (TypeError, ValueError):
        # The signature of much that is written in C is unknown.
        return True
    try:
        signature.bind(*(None,) * arguments)
    except TypeError:
        return False
    return True
