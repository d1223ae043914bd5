"""Who reads the engine follows each of its ways through few files."""

import pytest

from benchmarks.journeys import ENGINE, JOURNEYS, LEVELS, Journey, level_of

# Not the one that is no way through the engine, and needs a thread.
ENGINES = [name for name in JOURNEYS if "SQLite" not in name]


@pytest.mark.parametrize("name", ENGINES)
async def test_a_way_through_the_engine_passes_few_files(name: str) -> None:
    travel, most = JOURNEYS[name]
    journey = Journey()
    await travel(journey)
    # The loop's own clock is virtual here.
    passed = [each for each in journey.files if not each.startswith("testing/")]
    assert len(passed) <= most, passed


def test_the_engine_has_few_import_levels() -> None:
    assert level_of(f"{ENGINE}.queue") <= LEVELS
