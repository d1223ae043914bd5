"""Writes docs/benchmarks.md from a run's figures: python -m benchmarks.page [JSON].

The figures are those of the last `make bench`, or of the file that is named. The
picture beside the page needs matplotlib.
"""

import argparse
import importlib.util
from importlib import import_module
from pathlib import Path
from textwrap import fill

from benchmarks.report import FILE, Report, said
from benchmarks.table import Table

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PICTURE = "images/benchmarks.svg"

INTRODUCTION = """\
# Benchmarks

Written by `python -m benchmarks.page` from the figures of one `make bench`.

All contenders of a table get the same items, in turns, and what is shown are medians.
Read the ratios: they come from one run on one machine, and each is the median of its
turns' own ratios, since what slows a machine down for a while slows both samples of a
turn down. The *floor* is a list-swap queue written by hand, without any features: the
least that such a queue can do (`benchmarks/floor.py`). Of a chunk it counts the types
as it meets them; where the library has more than 100 % of it, that is because a list of
them is quicker. "We are" says how many times faster the library is than the row at the
same way of producing. "Spread" is the distance from the lowest sample to the highest,
as a part of the median. The items are set aside from garbage collections (`gc.freeze`):
whoever set one off would pay for all of them.
"""

JAVA = """\
The Java original moves, per item through `produce` on a machine with 2 cores (JDK 17),
28 million items/s of 100 types with 2 producers and 2 drain threads, and 47 million
with one of each and a buffer of 200,000. A plain `await` of nothing costs CPython
0.087 us, which is 11.5 million/s. So item by item Java stays ahead; in chunks it need
not.
"""

PROGRAMS = """\
## With figures of their own

These programs are not part of one run of all; what they show stands where it belongs.

| `python -m benchmarks.` | what | figures |
| --- | --- | --- |
| `plan_vs_postgres` | a simulation beside a real PostgreSQL: ratios of 0.96 to 1.00 | \
[planning](guides/planning.md#beside-reality) |
| `adaptive` | `max_batch="auto"`: 95 % of the best fixed size, and under throttling; \
`DrainTaskPolicy.adaptive` | [batches](guides/batching.md#a-size-that-is-found), \
[drain tasks](guides/rebalancing.md#as-many-as-help) |
| `throttling` | both of them before an HTTP server that throttles | \
[batches](guides/batching.md#a-size-that-is-found), \
[drain tasks](guides/rebalancing.md#as-many-as-help) |
| `rebalancing`, `shared_drains` | drain tasks under skewed load | \
[rebalancing](guides/rebalancing.md), [sharing](guides/manager.md#sharing-drain-tasks) |
| `tenants` | quiet tenants beside one that floods | [fairness](guides/fairness.md) |
"""

HEADINGS = {
    "in loop": "In the loop",
    "small batches": "Small batches",
    "room": "Little room",
    "crowd": "",
    "sizes and keys": "Sizes and keys",
    "bridge": "From threads",
    "bridge uses": "",
    "busy machine": "",
    "latency": "Latency",
    "lone items": "Lone items",
    "bridge cpu": "",
    "idle": "At rest",
    "waiting": "",
    "handlers": "",
    "import": "Import",
    "growth": "Growth",
    "rebalancing": "Rebalancing",
    "original skew": "",
    "closing": "Flush and shutdown",
}

IN_THE_LOOP = """\
With 100 types the first rows are what most configure: adaptive partitions, here one for
each type, and 4 drain tasks; "we are" is about them. Their price is what each of the
100 partitions costs per chunk on its way in and out. Then the same in one partition.
"Items per batch" are those of a handler's call, in the mean.
"""

SMALL_BATCHES = """\
Chunks with one item of each of 100 types, each handled before the next comes: every
handler's call has one item, so items/s are calls/s. What a call costs here is mostly
what comes around it. The floor gives the loop a turn once per chunk.
"""

LITTLE_ROOM = """\
At most 10 items wait, so nearly every producer waits for room, and a handler gets ten
items. In `asyncio.Queue` whoever comes in the right moment overtakes those who wait;
here nobody does. Its consumers are written by hand: one takes what is there, one also
sorts by type, catches errors and tells each item as done, and one makes no batches. The
library has its handler as `consumer=`, and once for a type, which it has to look at in
each item. The floor that keeps the promises is a queue by hand that waits as the
library does, in order and with nothing left of who is cancelled; the other floor does
not. The last table has thousands of producers, as the requests of a service, at the
default buffer and where all of them wait all the time.
"""

SIZES_AND_KEYS = """\
Settings for which each item is looked at: its size is asked for, or its key. By hand
that is a list with its size and a condition, and a deque for each key: there an error
ends the loop, who waits for room is overtaken, and nothing is counted. The floor looks
at nothing.
"""

FROM_THREADS = """\
Producers are threads; the loop runs in one of its own. The last tables have one thread,
by how the queue is used: a `consumer=`, one handler, a handler for each of 100 types
(adaptive partitions, 4 drain tasks), 100 types of which only the base has a handler,
a `consumer=` whose batches are bounded by size, and `by_key` (100 keys on 4
partitions). Janus and the floor get the same items, and ask none for its size. In the
very last one two other processes keep both cores busy.
"""

LATENCY = """\
From the call of `produce` to the moment when the handler is called with the item, at a
steady rate; above 1,000 items/s they come in bursts, one per millisecond. CPU is that
of the whole process, producer included.
"""

LONE_ITEMS = """\
One item, and the next one only after it was handled: at once (ping-pong), or 2 ms
later. No batch can form, so what is left is how soon a queue notices. Shown is the time
from the call of `produce` to that of the handler; CPU is that of the whole process,
producer included. The last table has items from a thread, one per millisecond, each of
which wakes the loop up; the thread's own pace is part of everybody's CPU.
"""

IMPORT = """\
Whole processes in turns, one of which imports the package, too. Modules are those that
were not there after asyncio and anyio.
"""

REBALANCING = """\
First what a round costs while there is nothing to move. Then the original's own
benchmark: of 100 types 20 come 24 times as often as the rarest, 30 eight times, 20 four
times, and drain tasks start as uneven as its threads did, 1.30. Handlers that await a
sink gain what the busiest drain task held back, at most 21 % here. Handlers that
compute gain nothing, since all drain tasks share one processor. The original's figures
are from its documentation, of a machine with more cores: compare the last columns.
"""

GROWTH = """\
The cost of an item with more types, and with more drain tasks. Then what more handlers
cost where the same number of items comes, one by one: those that fail are tried again
after half a second at most, so that 16 times as many make 16 times as many calls.
"""

ABOUT = {
    "In the loop": IN_THE_LOOP,
    "Small batches": SMALL_BATCHES,
    "Little room": LITTLE_ROOM,
    "Sizes and keys": SIZES_AND_KEYS,
    "From threads": FROM_THREADS,
    "Latency": LATENCY,
    "Lone items": LONE_ITEMS,
    "Import": IMPORT,
    "Growth": GROWTH,
    "Rebalancing": REBALANCING,
}


def written(report: Report, *, has_picture: bool) -> str:
    """Return the page."""
    parts = [INTRODUCTION, about(report)]
    if goals := report.tables.get("goals"):
        parts += ["## Goals\n", in_markdown(goals), JAVA]
    if has_picture:
        title = "Items per second of all contenders; cost per item against types"
        parts.append(f"![{title}]({PICTURE})\n")
    heading = ""
    for key, table in report.tables.items():
        new = HEADINGS.get(key.partition("/")[0], "")
        if new and new != heading:
            heading = new
            parts.append(f"## {heading}\n")
            parts += [ABOUT[heading]] if heading in ABOUT else []
        if key != "goals":
            parts += [f"**{table.title}**\n", in_markdown(table)]
    return "\n".join([*parts, PROGRAMS])


def about(report: Report) -> str:
    """Return where, with what, when, and how undisturbed."""
    machine = report.machine
    versions = ", ".join(f"{name} {it}" for name, it in report.versions.items())
    quick = " It was a quick run: a sketch." if report.is_quick else ""
    measured = (
        f"Measured on {machine['date']} with {machine['python']} on {machine['system']}"
        f" ({machine['processor']}): {versions}.{quick}"
    )
    return f"{fill(measured, 88)}\n\n{fill(said(report.noise), 88)}\n"


def in_markdown(table: Table) -> str:
    """Return a table; numbers stand on the right."""
    names = [column.name for column in table.columns]
    sides = ["---" if each.format == "text" else "---:" for each in table.columns]
    rows = [names, sides, *table.written()]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    lines += ["", *(f"({note})" for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write the page and its picture."""
    parser = argparse.ArgumentParser(prog="benchmarks.page", description=__doc__)
    parser.add_argument("figures", nargs="?", type=Path, default=FILE)
    parser.add_argument("--output", type=Path, default=PAGE)
    options = parser.parse_args()
    report = Report.load(options.figures)
    has_picture = importlib.util.find_spec("matplotlib") is not None
    if has_picture:
        picture = options.output.parent / PICTURE
        picture.parent.mkdir(parents=True, exist_ok=True)
        import_module("benchmarks.picture").save(report, picture)
    options.output.write_text(written(report, has_picture=has_picture), "utf-8")
    print(f"saved {options.output}")


if __name__ == "__main__":
    main()
