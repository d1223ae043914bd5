"""Counts the bytecode instructions that a block of code takes, line by line.

Unlike time they are the same in each run, on a busy machine, too. What C code does in
one instruction (copying a list, say) is not seen: for that there is `make bench`.
"""

import gc
import linecache
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import batchqueue_async

PACKAGE = Path(batchqueue_async.__file__).parent
_OURS = str(PACKAGE)
# The virtual loop, which runs the measured code and is not counted.
_LOOP = str(PACKAGE / "testing")
_DRIVER = str(Path(__file__).parent)

Counts = Counter[tuple[CodeType, int]]


class Instructions:
    """What the package executed, with everything that it called."""

    def __init__(self) -> None:
        self._counts: Counts = Counter()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count inside of the block."""
        # A finalizer would be counted for the line that it happens to interrupt.
        was_collecting = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            with _counting(self._counts):
                yield
        finally:
            if was_collecting:
                gc.enable()

    def by_line(self) -> dict[str, int]:
        """Return the counts by where and what; line numbers would change too often."""
        lines: Counter[str] = Counter()
        for (code, number), count in self._counts.items():
            lines[_name(code, number)] += count
        return dict(lines)


def _is_counted(frame: FrameType | None) -> bool:
    """Whether the package runs, or what it called; handlers are not the package's."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith((_OURS, _DRIVER)) and not file.startswith(_LOOP):
            return file.startswith(_OURS)
        frame = frame.f_back
    return False


if sys.version_info >= (3, 12):
    # There tracing misses instructions of coroutines that were begun before it.

    @contextmanager
    def _counting(counts: Counts) -> Iterator[None]:
        monitoring = sys.monitoring
        tool, event = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION
        lines: dict[CodeType, dict[int, int]] = {}

        def count(code: CodeType, offset: int) -> None:
            if _is_counted(sys._getframe(1)):  # noqa: SLF001 - the only way
                if code not in lines:
                    lines[code] = _lines_of(code)
                counts[code, lines[code][offset]] += 1

        monitoring.use_tool_id(tool, "budget")
        monitoring.register_callback(tool, event, count)
        monitoring.set_events(tool, event)
        try:
            yield
        finally:
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)

else:

    @contextmanager
    def _counting(counts: Counts) -> Iterator[None]:
        def enter(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401
            if event != "call" or not _is_counted(frame):
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return inside

        def inside(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401
            if event == "opcode":
                line = frame.f_lineno or frame.f_code.co_firstlineno
                counts[frame.f_code, line] += 1
            return inside

        before = sys.gettrace()
        sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(before)


def _lines_of(code: CodeType) -> dict[int, int]:
    """Return the line of each offset; without one it is the function's head's."""
    return {
        offset: line or code.co_firstlineno
        for start, end, line in code.co_lines()
        for offset in range(start, end, 2)
    }


def _name(code: CodeType, number: int) -> str:
    file = Path(code.co_filename)
    if not file.is_relative_to(PACKAGE):
        # Generated code, or a library whose lines are not ours to watch.
        return f"{file.parent.name}/{file.name}".removeprefix("/") + " (called)"
    text = linecache.getline(code.co_filename, number).strip()
    return f"{file.relative_to(PACKAGE).as_posix()} {code.co_qualname}: {text}"
