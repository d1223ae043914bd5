"""What the tests of this folder share."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Settings are drawn here, whether they have an effect together or not."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:.* has no effect"))
