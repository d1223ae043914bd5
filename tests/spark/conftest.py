"""One standalone cluster for all the tests that want a real one."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A master and two workers of two cores; leave no application behind."""
    with running_cluster() as running:
        yield running
