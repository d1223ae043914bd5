"""What a property is tried with depends on the property alone."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.properties.profile import profile


def test_examples_do_not_depend_on_what_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "\n".join(f"A{n} = {n}" for n in range(1000, 1100))
    (tmp_path / "full_of_constants.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    before = drawn()
    __import__("full_of_constants")

    assert drawn() == before


def drawn() -> list[int]:
    """Return the numbers that Hypothesis comes up with."""
    numbers: list[int] = []

    @profile(200, 1)
    @given(st.integers(1000, 5000))
    def draw(number: int) -> None:
        numbers.append(number)

    draw()
    return numbers
