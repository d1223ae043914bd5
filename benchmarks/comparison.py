"""Measures the queue beside its peers and its floor: python -m benchmarks.comparison.

All contenders get the same items from the same loop, in turns; what counts is the time
from the first item produced to the last one handled. Read the ratios: they come from
one run. The items per second are this machine's. It is the part of `make bench` that is
about items per second, on asyncio's loop, and takes about two minutes.
"""

from benchmarks import bridge, in_loop, machine
from benchmarks.report import said
from benchmarks.scale import Scale, loops
from benchmarks.table import show
from benchmarks.turns import Turns


def main() -> None:
    """Compare everybody, in the loop and from threads."""
    print(", ".join([*machine.describe().values()]))
    print(", ".join(f"{name} {it}" for name, it in machine.versions().items()))
    turns, scale, loop = Turns(5), Scale(), loops()["asyncio"]
    for kinds in (1, 100):
        show(in_loop.table(kinds, "asyncio", loop, scale, turns))
    for threads in (1, 4):
        show(bridge.table(threads, "asyncio", loop, scale, turns))
    print(f"\n{said(turns.noise())}")


if __name__ == "__main__":
    main()
