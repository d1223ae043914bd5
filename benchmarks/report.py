"""One run's figures, with where and how they came about: out/benchmarks.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.table import Table

FILE = Path(__file__).parents[1] / "out" / "benchmarks.json"
# Up to these values other processes hardly change a median.
_QUIET_CORES = 0.15
_QUIET_PART = 0.1
# A virtual machine's host may slow it down, which only the spread shows.
_STEADY_SPREAD = 0.15


@dataclass
class Report:
    """What was measured, and when the machine was how busy."""

    machine: dict[str, str]
    versions: dict[str, str]
    is_quick: bool
    seconds: float = 0.0
    noise: dict[str, float | None] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    def save(self, file: Path = FILE) -> None:
        """Write all of it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        tables = [table.as_json() for table in self.tables.values()]
        content = {**vars(self), "tables": tables}
        file.write_text(json.dumps(content, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, file: Path = FILE) -> Self:
        """Read what was saved."""
        content = json.loads(file.read_text("utf-8"))
        tables = map(Table.from_json, content.pop("tables"))
        return cls(**content, tables={table.key: table for table in tables})


def said(noise: Mapping[str, float | None]) -> str:
    """Return in words how far the figures can be trusted."""
    others, disturbed = noise["others' cores"], noise["disturbed"] or 0.0
    part = disturbed / (noise["samples"] or 1.0)
    if others is None:
        first = "What other processes did is not known here."
    elif others < _QUIET_CORES and part < _QUIET_PART:
        first = f"The machine was quiet: other processes used {others:.2f} cores."
        if (noise["spread, median"] or 0.0) > _STEADY_SPREAD:
            first += " BUT IT WAS NOT STEADY, so differences may be noise."
    else:
        first = (
            f"THE MACHINE WAS NOT QUIET: other processes used {others:.2f} cores, so "
            "differences may be noise."
        )
    return (
        f"{first} Of {noise['samples']:.0f} samples {noise['retaken']:.0f} were taken "
        f"again and {disturbed:.0f} stayed disturbed. From lowest to highest, samples "
        f"of a row spread over {noise['spread, median']:.0%} of their median, in the "
        f"noisiest tenth over more than {noise['spread, 9 of 10']:.0%}."
    )
