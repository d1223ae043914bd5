"""Interrupts a call at each point where CPython would run a signal handler.

Signals are handled after a call of a C function, at the start of a Python function and
at the end of a loop's turn, in between two bytecodes. A trace function that acts there
does what an unlucky Ctrl-C does, but at the n-th point, and on any thread.
"""

import dis
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import batchqueue_async

_PACKAGE = str(Path(batchqueue_async.__file__).parent)
# The loop that the tests run on is none of what they test.
_LOOP = str(Path(batchqueue_async.__file__).parent / "testing")
_CHECKED = frozenset(
    dis.opmap[name]
    for name in ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME")
    if name in dis.opmap
)


class Interruption:
    """Runs `action` at the n-th point inside of the package, while it is entered."""

    def __init__(self, at: int, action: Callable[[], object]) -> None:
        self.where: str | None = None
        self._left = at
        self._action = action
        # By frame: the offset of the instruction before, if signals follow on it.
        self._checked: dict[FrameType, int | None] = {}

    @property
    def has_acted(self) -> bool:
        return self.where is not None

    def __enter__(self) -> Self:
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._checked.clear()

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:  # noqa: ANN401
        if frame.f_back is not None and frame.f_back in self._checked:
            # Not a C function: its own end is no point.
            self._checked[frame.f_back] = None
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE) or file.startswith(_LOOP):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._checked[frame] = None
        return self._traced

    def _traced(self, frame: FrameType, event: str, arg: object) -> Any:  # noqa: ANN401
        if event == "opcode" and not self.has_acted:
            before, here = self._checked.get(frame), frame.f_lasti
            self._checked[frame] = (
                here if frame.f_code.co_code[here] in _CHECKED else None
            )
            if before is not None and _same_handler(frame, before, here):
                self._left -= 1
                if self._left < 0:
                    self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                    self._action()
        return self._traced


def _same_handler(frame: FrameType, one: int, other: int) -> bool:
    """Whether an exception at both offsets is caught in the same place."""
    table = dis._parse_exception_table(frame.f_code)  # type: ignore[attr-defined]
    return _target(table, one) == _target(table, other)


def _target(table: list[Any], offset: int) -> int | None:
    return next(
        (each.target for each in table if each.start <= offset < each.end), None
    )


def ctrl_c() -> None:
    raise KeyboardInterrupt
