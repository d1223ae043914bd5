"""The code in the documentation of the ring runs, as one program."""

from __future__ import annotations

import asyncio
import re

from tests.test_docs import ROOT, compiled_blocks, run_in_order

PAGE = ROOT / "docs" / "ring.md"


def test_its_code_runs() -> None:
    codes = compiled_blocks(PAGE)
    assert len(codes) >= 4
    asyncio.run(run_in_order(codes))


def test_each_of_the_disruptors_tests_has_its_place() -> None:
    rows = re.findall(
        r"^\| (\w+Test) \| (.+?) \|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    names = [(kind, name) for kind, cell in rows for name in cell.split(", ")]

    assert len(names) == len(set(names)) == 212
