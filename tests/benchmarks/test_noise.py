"""What a benchmark's report says about the machine that it ran on."""

import pytest

from benchmarks.report import said


def noise(**different: float | None) -> dict[str, float | None]:
    known = {"samples": 100.0, "retaken": 2.0, "disturbed": 0.0}
    spreads = {"spread, median": 0.05, "spread, 9 of 10": 0.2}
    return {"others' cores": 0.0, **known, **spreads, **different}


@pytest.mark.parametrize(
    "different, verdict",
    [
        ({}, "The machine was quiet: other processes used 0.00 cores. Of 100"),
        ({"others' cores": 0.3}, "THE MACHINE WAS NOT QUIET: other processes used"),
        ({"disturbed": 20.0}, "THE MACHINE WAS NOT QUIET: other processes used"),
        ({"others' cores": None}, "What other processes did is not known here. Of"),
        ({"spread, median": 0.3}, "The machine was quiet: other processes used 0.00"),
    ],
)
def test_it_says_how_far_the_figures_can_be_trusted(
    different: dict[str, float | None], verdict: str
) -> None:
    words = said(noise(**different))
    assert words.startswith(verdict)
    assert ("BUT IT WAS NOT STEADY" in words) == ("spread, median" in different)
