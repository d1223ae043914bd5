"""All benchmarks, one after the other: `make bench`.

Ratios come first, because they come from one run; absolute figures are this machine's.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks import (
    at_rest,
    bridge,
    bridge_cpu,
    bridge_uses,
    busy_machine,
    closing,
    crowd,
    growth,
    importing,
    in_loop,
    latency,
    lone_items,
    machine,
    many_handlers,
    original_skew,
    rebalancing_cost,
    room,
    sizes_and_keys,
    small_batches,
)
from benchmarks.goal import goals_table
from benchmarks.goals import GOALS
from benchmarks.report import FILE, Report, said
from benchmarks.scale import LoopFactory, Scale, loops
from benchmarks.table import Table, show
from benchmarks.turns import Turns

# Seconds. So that all ends within ten minutes, on a busy machine, too.
_NO_RETAKES_AFTER = 300.0
_NO_PROGRAM_AFTER = 500.0
SEPARATE = ("rebalancing", "shared_drains", "tenants")
"""Programs with figures of their own, that take up to 80 seconds each."""

Section = Callable[[dict[str, LoopFactory], Scale, Turns], Iterator[Table]]


def _in_loop(
    run: dict[str, LoopFactory], scale: Scale, turns: Turns
) -> Iterator[Table]:
    for name, loop in run.items():
        for kinds in (1, 100):
            yield in_loop.table(kinds, name, loop, scale, turns)
    yield small_batches.table(run["asyncio"], scale, turns)
    yield room.table(run["asyncio"], scale, turns)
    yield crowd.table(run["asyncio"], scale, turns)
    yield sizes_and_keys.table(run["asyncio"], scale, turns)


def _bridge(run: dict[str, LoopFactory], scale: Scale, turns: Turns) -> Iterator[Table]:
    for name, loop in run.items():
        for threads in (1, 4):
            yield bridge.table(threads, name, loop, scale, turns)
    yield bridge_uses.table("asyncio", run["asyncio"], scale, turns)
    yield busy_machine.table(run["asyncio"], scale, turns)


def _latency(
    run: dict[str, LoopFactory], scale: Scale, turns: Turns
) -> Iterator[Table]:
    for rate in latency.RATES:
        yield latency.table(rate, "asyncio", run["asyncio"], scale, turns)


def _lone_items(
    run: dict[str, LoopFactory], scale: Scale, turns: Turns
) -> Iterator[Table]:
    for way in lone_items.PAUSES:
        yield lone_items.table(way, run["asyncio"], scale, turns)
    yield bridge_cpu.table(run["asyncio"], scale, turns)


def _at_rest(_: dict[str, LoopFactory], scale: Scale, turns: Turns) -> Iterator[Table]:
    yield at_rest.idle_table(scale)
    yield at_rest.waiting_table(scale)
    yield at_rest.handlers_table(scale)
    yield importing.table(scale, turns)


def _growth(run: dict[str, LoopFactory], scale: Scale, turns: Turns) -> Iterator[Table]:
    yield growth.types_table(run["asyncio"], scale, turns)
    yield growth.drain_tasks_table(run["asyncio"], scale, turns)
    yield many_handlers.table(run["asyncio"], scale, turns)


def _rest(run: dict[str, LoopFactory], scale: Scale, turns: Turns) -> Iterator[Table]:
    yield rebalancing_cost.table(run["asyncio"], scale, turns)
    yield original_skew.table(run["asyncio"], scale, turns)
    yield closing.table(run["asyncio"], scale, turns)


# Growth depends on the processor's caches, so it is first, in fresh memory.
SECTIONS: dict[str, Section] = {
    "growth": _growth,
    "in_loop": _in_loop,
    "bridge": _bridge,
    "latency": _latency,
    "lone_items": _lone_items,
    "at_rest": _at_rest,
    "rest": _rest,
}


def measure(names: list[str], scale: Scale, rounds: int) -> Report:
    """Measure these sections, and show each table as soon as it is there."""
    started = time.monotonic()
    report = Report(machine.describe(), machine.versions(), scale.is_quick)
    print(", ".join(report.machine.values()))
    print(", ".join(f"{name} {it}" for name, it in report.versions.items()))
    print(f"medians of {rounds} and more turns; ratios are medians of the turns' own")
    turns = Turns(rounds, scale.is_quick, started + _NO_RETAKES_AFTER)
    run = loops()
    if scale.is_quick:
        run = {"asyncio": run["asyncio"]}
    for name in names:
        section_started = time.monotonic()
        for table in SECTIONS[name](run, scale, turns):
            report.tables[table.key] = table
            show(table)
        print(f"\n({name}: {time.monotonic() - section_started:.0f} s)")
    report.noise = turns.noise()
    report.seconds = time.monotonic() - started
    return report


def finish(report: Report, file: Path) -> None:
    """Compare with the goals, and save."""
    report.tables["goals"] = goals_table(GOALS, report.tables)
    show(report.tables["goals"])
    print(f"\n{said(report.noise)}")
    report.save(file)
    saved = [str(file)]
    if importlib.util.find_spec("matplotlib"):
        picture = file.with_suffix(".svg")
        import_module("benchmarks.picture").save(report, picture)
        saved.append(str(picture))
    print(f"{report.seconds:.0f} s; saved {', '.join(saved)}")


def run_separate(started: float, *, is_quick: bool) -> None:
    """Run the programs that have figures of their own, or name them."""
    for name in SEPARATE:
        if importlib.util.find_spec(f"benchmarks.{name}") is None:
            continue
        if is_quick or time.monotonic() - started > _NO_PROGRAM_AFTER:
            print(f"not run, to save time: python -m benchmarks.{name}")
        else:
            print(f"\npython -m benchmarks.{name}")
            import_module(f"benchmarks.{name}").main()


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sketch, within 60 s")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=[*SECTIONS])
    parser.add_argument("--rounds", type=int, default=5, help="samples per median")
    parser.add_argument("--output", type=Path, default=FILE, metavar="FILE.json")
    options = parser.parse_args()
    started = time.monotonic()
    report = measure(options.only, Scale(options.quick), options.rounds)
    finish(report, options.output)
    if options.only == [*SECTIONS]:
        run_separate(started, is_quick=options.quick)


if __name__ == "__main__":
    main()
