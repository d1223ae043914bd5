"""Interrupts a call at each point where CPython would run a signal handler.

Signals are handled after a call of a C function, at the start of a Python function and
at the end of a loop's turn, in between two bytecodes. A trace function that acts there
does what an unlucky Ctrl-C does, but at the n-th point, and on any thread.
"""

import dis
import gc
import sys
import threading
from collections.abc import Callable
from functools import cache
from inspect import CO_COROUTINE, CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
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

# The argument of RESUME after `yield from`; that after `await` is one more.
_AWAITS = 2

# Run step by step: a task may begin here.
_STEPPED = CO_COROUTINE | CO_GENERATOR

# None of those that have a name: a debugger, coverage, a profiler.
_TOOL = 4


class Interruption:
    """Runs `action` at the n-th point inside of the package, while it is entered.

    Points are in what `runs_in` says yes to. It is asked where a function begins or
    goes on, and has to say the same until that leaves off, as of the task that runs.
    What runs elsewhere is not traced, which makes a sweep several times as fast. A
    function's begin, and where a generator goes on, are points only with `at_entries`.
    """

    def __init__(
        self,
        at: int,
        action: Callable[[], object],
        runs_in: Callable[[], bool] = lambda: True,
        *,
        at_entries: bool = False,
    ) -> None:
        self.where: str | None = None
        # The outermost of the package's functions that ran for a task or callback.
        self.root = ""
        self._left = at
        self._action = action
        self._runs_in = runs_in
        self._at_entries = at_entries
        self._collects = False
        self._places: dict[FrameType | None, _Place] = {}

    @property
    def has_acted(self) -> bool:
        return self.where is not None

    def __enter__(self) -> Self:
        # A finalizer of other queues is no point of this one: what is raised there is
        # ignored, and CPython 3.11 may crash.
        self._collects = gc.isenabled()
        gc.disable()
        if sys.version_info >= (3, 12):
            _monitor(self._entered, self._comes_to)
        else:
            sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        if sys.version_info >= (3, 12):
            _monitor(None, None)
        else:
            sys.settrace(None)
        self._places.clear()
        if self._collects:
            gc.enable()

    def _called(self, frame: FrameType, event: str, arg: object) -> "_Place | None":
        if (place := self._entered(frame)) is not None:
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return place

    def _entered(self, frame: FrameType) -> "_Place | None":
        """Note a frame that begins, or goes on; returns its place if it has points."""
        if self._places and (caller := self._places.get(frame.f_back)) is not None:
            # Not a C function: its own end is no point.
            caller.before = None
        if not _OURS[frame.f_code] or not self._runs_in():
            return None
        self._places[frame] = place = _Place(frame.f_code, self._comes_to)
        if self._at_entries and not self.has_acted and _looks_at_signals(frame):
            self._come_to(frame)
        return place

    def _comes_to(self, frame: FrameType) -> None:
        """Act before this instruction if that is the point."""
        if self.where is None and (place := self._places.get(frame)) is not None:
            before, here = place.before, frame.f_lasti
            place.before = here if here in place.followed else None
            if before is not None and place.handlers[before] == place.handlers[here]:
                self._come_to(frame)

    def _come_to(self, frame: FrameType) -> None:
        self._left -= 1
        if self._left < 0:
            self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
            self.root = _root_of(frame)
            if sys.version_info < (3, 12):
                # What follows is no point, and is much faster untraced.
                sys.settrace(None)
            self._action()


class _Place:
    """Where a frame is, and in whose instructions; on 3.11 it traces them, too.

    `before` is the offset of the instruction before, if signals follow on it.
    """

    __slots__ = ("_comes_to", "before", "followed", "handlers")

    def __init__(self, code: CodeType, comes_to: Callable[[FrameType], None]) -> None:
        self.before: int | None = None
        self.followed, self.handlers = _layout(code)
        self._comes_to = comes_to

    def __call__(self, frame: FrameType, event: str, arg: object) -> Self:
        if event == "opcode":
            self._comes_to(frame)
        return self


def _monitor(
    entered: Callable[[FrameType], object] | None,
    comes_to: Callable[[FrameType], object] | None,
) -> None:
    """Have both called, or nothing any more.

    A trace function would do, as on 3.11, but on 3.13.0 a function that asks for its
    instructions while it begins is told of none before its next call.
    """
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    events = monitoring.events
    wanted = {
        events.PY_START: entered,
        events.PY_RESUME: entered,
        events.PY_THROW: entered,
        events.INSTRUCTION: comes_to,
    }
    if comes_to is None:
        monitoring.set_events(_TOOL, 0)
    else:
        monitoring.use_tool_id(_TOOL, "interruptions")
    for event, call in wanted.items():
        monitoring.register_callback(_TOOL, event, call and _of_frame(call))
    if comes_to is None:
        monitoring.free_tool_id(_TOOL)
    else:
        monitoring.set_events(_TOOL, sum(wanted))


def _of_frame(call: Callable[[FrameType], object]) -> Callable[..., None]:
    here = threading.get_ident()

    def called(*_: object) -> None:
        if threading.get_ident() == here:
            call(sys._getframe(1))

    return called


class _Ours(dict[CodeType, bool]):
    """Whether a function is the package's: each is looked at once."""

    def __missing__(self, code: CodeType) -> bool:
        file = code.co_filename
        self[code] = is_ours = file.startswith(_PACKAGE) and not file.startswith(_LOOP)
        return is_ours


_OURS = _Ours()


def _root_of(frame: FrameType) -> str:
    caller: FrameType | None = frame
    while caller is not None and not frame.f_code.co_flags & _STEPPED:
        if _OURS[caller.f_code]:
            frame = caller
        caller = caller.f_back
    return frame.f_code.co_qualname


def _looks_at_signals(frame: FrameType) -> bool:
    """Whether it begins, or goes on after a `yield`; not after an `await`."""
    code, here = frame.f_code.co_code, max(frame.f_lasti, 0)
    resume = dis.opmap["RESUME"]
    is_generator_start = code[here] != resume
    return is_generator_start or code[here + 1] < _AWAITS


@cache
def _layout(code: CodeType) -> tuple[frozenset[int], dict[int, int | None]]:
    """Return the offsets on which signals follow, and by offset who catches there.

    Once for each function: its code and its table are made anew whenever one asks.
    """
    instructions = code.co_code
    offsets = range(0, len(instructions), 2)
    table = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    followed = frozenset(each for each in offsets if instructions[each] in _CHECKED)
    return followed, {each: _target(table, each) for each in offsets}


def _target(table: list[Any], offset: int) -> int | None:
    return next(
        (each.target for each in table if each.start <= offset < each.end), None
    )


def ctrl_c() -> None:
    raise KeyboardInterrupt
