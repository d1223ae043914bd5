"""Under Trio a `LoopThread` has the loop, as the guide on threads says."""

import re
from pathlib import Path

import pytest

from tests.bridge.programs import Program

GUIDE = Path(__file__).parents[2] / "docs/guides/threads.md"


def test_the_guides_program_handles_what_it_produces() -> None:
    pytest.importorskip("trio")
    section = GUIDE.read_text().split("\n## Under Trio\n")[1]
    program = re.search(r"```py\n(.*?)```", section, re.DOTALL)
    assert program is not None
    ended = Program(program[1] + "\ntrio.run(main)").end()
    assert ended.status == 0, ended.log
    assert ended.output.count("a row") == 1
    assert ended.output.count("one that may wait for room") == 1
