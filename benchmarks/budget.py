"""Compares the hot paths' bytecode instructions with a budget: `make budget`.

A path that got more than 10 % dearer fails, with the lines to blame. If it is intended,
`python -m benchmarks.budget --record` writes the new budget; it belongs to the commit.
Each minor version of Python has a budget of its own, because their bytecode differs.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("budget.json")
ALLOWED = 1.10
_BLAMED = 8
# Lines below this part of a path's cost are recorded together.
_WORTH_A_LINE = 0.01
REST = "(lines below 1 %)"


@dataclass(frozen=True)
class Cost:
    """Instructions per unit: in all, and line by line."""

    unit: str
    total: float
    lines: Mapping[str, float]


Budget = Mapping[str, Cost]


@dataclass(frozen=True)
class Change:
    """One path, as recorded and as counted now; either may be missing."""

    path: str
    before: Cost | None
    now: Cost | None

    @property
    def ratio(self) -> float | None:
        """How much dearer it is; None where there is nothing to compare."""
        if self.before is None or self.now is None:
            return None
        return self.now.total / self.before.total

    @property
    def is_too_dear(self) -> bool:
        """Whether it fails."""
        return self.ratio is not None and self.ratio > ALLOWED

    def blamed(self) -> list[tuple[str, float, float]]:
        """Return the lines that cost more, the worst first, with before and now."""
        if self.before is None or self.now is None:
            return []
        before, now = self.before.lines, self.now.lines
        dearer = [
            (name, before.get(name, 0.0), now.get(name, 0.0))
            for name in now.keys() | before.keys()
            if now.get(name, 0.0) > before.get(name, 0.0)
        ]
        dearer.sort(key=lambda each: (each[1] - each[2], each[0]))
        return dearer[:_BLAMED]


def cost_of(unit: str, units: int, counts: Mapping[str, int]) -> Cost:
    """Return the cost per unit, with small lines put together."""
    total = sum(counts.values())
    lines: dict[str, float] = {}
    for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        own = name if count >= _WORTH_A_LINE * total else REST
        lines[own] = round(lines.get(own, 0.0) + count / units, 4)
    return Cost(unit, round(total / units, 4), lines)


def compared(recorded: Budget, measured: Budget) -> list[Change]:
    """Return all paths, those with a budget first."""
    paths = [*recorded, *(path for path in measured if path not in recorded)]
    return [Change(path, recorded.get(path), measured.get(path)) for path in paths]


def diff(changes: list[Change]) -> str:
    """Return what people read: a line for each path, and whom to blame."""
    lines = [f"{'instructions':50}{'budget':>12}{'now':>12}  change"]
    for each in changes:
        unit = (each.now or each.before or Cost("", 0, {})).unit
        numbers = "".join(
            f"{cost.total:12,.2f}" if cost else f"{'none':>12}"
            for cost in (each.before, each.now)
        )
        change = "" if each.ratio is None else f"  {each.ratio - 1:+.1%}"
        mark = "  TOO DEAR" if each.is_too_dear else ""
        lines.append(f"{f'{each.path}, per {unit}':50}{numbers}{change}{mark}")
        if each.is_too_dear:
            lines += [
                f"    {before:10,.2f} -> {now:10,.2f}  {name}"
                for name, before, now in each.blamed()
            ]
    return "\n".join(lines)


def load(file: Path, version: str) -> dict[str, Cost]:
    """Return what was recorded for this version of Python, if anything."""
    if not file.exists():
        return {}
    budgets = json.loads(file.read_text("utf-8"))
    return {path: Cost(**cost) for path, cost in budgets.get(version, {}).items()}


def record(file: Path, version: str, measured: Budget) -> None:
    """Write this version's budget, and keep the others'."""
    budgets = json.loads(file.read_text("utf-8")) if file.exists() else {}
    budgets[version] = {path: asdict(cost) for path, cost in measured.items()}
    file.write_text(json.dumps(budgets, indent=1) + "\n", "utf-8")


def measure() -> dict[str, Cost]:
    """Count all paths."""
    # Here, because comparing alone needs neither the package nor its tests' loop.
    from benchmarks.hot_paths import hot_paths  # noqa: PLC0415

    return {
        path.name: cost_of(path.unit, path.units, path.count().by_line())
        for path in hot_paths()
    }


def main() -> None:
    """Count, compare, and fail where something got too dear."""
    parser = argparse.ArgumentParser(prog="benchmarks.budget", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the new budget")
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    recorded, measured = load(options.file, version), measure()
    changes = compared(recorded, measured)
    print(diff(changes))
    if options.record:
        record(options.file, version, measured)
        print(f"recorded for Python {version}")
    elif not recorded:
        print(f"no budget for Python {version}: --record writes one")
    elif any(change.is_too_dear for change in changes):
        sys.exit(f"dearer than {ALLOWED - 1:.0%} over the budget of Python {version}")
    else:
        print(f"within the budget of Python {version}")


if __name__ == "__main__":
    main()
