"""What a job costs in CPU time, all processes of Spark together (Linux)."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int | None = None) -> float:
    """CPU time of a process and of those below it, until now; None: of this one.

    Other people's work on the machine changes it less than the time on the clock. What
    ended and was not waited for is missing: Spark keeps its processes between jobs.
    """
    found, root = _processes(), root or os.getpid()
    ticks = [t for pid, (_, t) in found.items() if _is_below(pid, root, found)]
    return sum(ticks) / _TICKS


def parent_of(pid: int) -> int:
    """The process that started this one."""
    return _processes()[pid][0]


def _processes() -> dict[int, tuple[int, int]]:
    """The parent and the ticks of each process."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue  # it has ended
            # After the command's name, which may hold blanks.
            fields = text[text.rindex(")") + 2 :].split()
            found[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    return found


def _is_below(pid: int, root: int, found: dict[int, tuple[int, int]]) -> bool:
    while pid in found:
        if pid == root:
            return True
        pid = found[pid][0]
    return False
