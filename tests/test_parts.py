"""Parts of a suite beside each other, and what gets a second run alone."""

from pathlib import Path

import pytest

from tests.support.parts import Ended, Part, run_all, to_run_again

SETTINGS = """
[pytest]
pythonpath = {root}
asyncio_mode = auto
markers =
    real_time:
    slow:
    spark:
"""
TESTS = """
import pytest
from pathlib import Path

# The file tells a second run from the first.
def pass_again(name):
    is_again = Path(name).exists()
    Path(name).touch()
    assert is_again, "not yet"

def test_that_passes():
    pass
"""
REAL_CLOCK = """
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_on_a_real_clock():
    pass_again("real")

@pytest.mark.slow
def test_left_out():
    pass
"""
VIRTUAL_TIME = """
async def test_in_virtual_time():
    pass_again("virtual")
"""
NEVER_PASSES = """
@pytest.mark.real_time
def test_never():
    assert 1 == 2
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    root = Path(__file__).parents[1]
    (tmp_path / "pytest.ini").write_text(SETTINGS.format(root=root))
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.conftest"]')
    return tmp_path


def part(suite: Path, name: str, tests: str = "") -> Part:
    (suite / f"test_{name}.py").write_text(TESTS + tests)
    return Part(name, [f"test_{name}.py"])


def test_who_fails_on_a_real_clock_has_to_pass_alone(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [part(suite, "a", REAL_CLOCK), part(suite, "b")]
    assert run_all(suite, parts, 2, "-m", "not slow") == 0
    out = capsys.readouterr().out
    # Its first failure is told in full; in the end it is named.
    assert "AssertionError: not yet" in out
    lines = out.splitlines()
    name = "test_a.py::test_on_a_real_clock"
    assert lines[-1] == f"failed beside others, passed alone: {name}"
    assert lines[-2].startswith("1 failed, 2 passed, 1 left for CI (THOROUGH=1")


def test_who_fails_in_virtual_time_has_failed(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_all(suite, [part(suite, "a", REAL_CLOCK + VIRTUAL_TIME)], 1) == 1
    out = capsys.readouterr().out
    assert out.count("has started") == 1
    assert "alone" not in out


@pytest.mark.slow
def test_who_fails_alone_too_has_failed(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_all(suite, [part(suite, "a", NEVER_PASSES)], 1) == 1
    out = capsys.readouterr().out
    assert out.count("has started") == 2
    name = "test_a.py::test_never"
    assert out.endswith(f"failed beside others, failed alone, too: {name}\n")


def failed(number: int, status: int = 1) -> Ended:
    """A part with so many failures on real clocks."""
    tests = dict.fromkeys(map(str, range(number)), True)
    return Ended(Part("part", []), status, "", tests)


def test_two_may_be_a_busy_machine_s_doing_and_three_are_not() -> None:
    two = [failed(1), failed(1)]
    assert to_run_again(two) == two
    assert to_run_again([failed(1), failed(2)]) == []


def test_a_part_that_broke_off_gets_no_second_run() -> None:
    # Killed, interrupted, unable to collect; or with a failure that is no test's.
    for broken in (failed(1, status=-9), failed(1, status=2), failed(0)):
        assert to_run_again([failed(1), broken]) == []


def test_the_counts_are_told_whatever_comes_behind_them() -> None:
    output = "== 3 passed, 2 deselected in 1.00s ==\nERROR StandaloneApp: late words\n"
    ended = Ended(Part("part", []), 0, output)
    assert ended.counts == "3 passed, 2 deselected in 1.00s"
    assert Ended(Part("part", []), -11, "").counts == "ended with status -11"
