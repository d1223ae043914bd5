"""Runs code in the middle of other code, where a signal handler or a `__del__` may."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import TraceFunction


@contextmanager
def before_each_line_of(
    *functions: Callable[..., object], act: Callable[[], object]
) -> Iterator[None]:
    """Call `act` on this thread before each line of these Python functions."""
    codes = set()
    for function in functions:
        assert isinstance(function, FunctionType)
        codes.add(function.__code__)

    def trace(frame: FrameType, event: str, _: object) -> "TraceFunction | None":
        if frame.f_code not in codes:
            return None
        if event == "line":
            act()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


class Once:
    """Acts at one of its calls, counted from zero."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.left = at
        self._act = act

    def __call__(self) -> None:
        self.left -= 1
        if self.left == -1:
            self._act()

    @property
    def has_acted(self) -> bool:
        return self.left < 0
