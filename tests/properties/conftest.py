"""What the tests of this folder share."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants


@pytest.fixture(autouse=True)
def _quiet_library() -> Iterator[None]:
    """Thousands of failures are provoked here; each log record would cost its share.

    asyncio's own log stays: what nobody looked at is an error here, too.
    """
    logger = logging.getLogger("batchqueue_async")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def _same_chance_every_time() -> Iterator[None]:
    """Retries wait for a random time; what a test finds must come back."""
    state = random.getstate()
    random.seed(0)
    yield
    random.setstate(state)


@pytest.fixture(autouse=True)
def _same_examples_every_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw nothing from what happens to be imported.

    Hypothesis sometimes draws a constant of any local module that is loaded, so that
    the examples of a machine would depend on which other tests have been collected.
    """
    monkeypatch.setattr(providers, "_get_local_constants", Constants)
    providers.CONSTANTS_CACHE.cache.clear()
    yield
    providers.CONSTANTS_CACHE.cache.clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Settings are drawn here, whether they have an effect together or not."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:.* has no effect"))
