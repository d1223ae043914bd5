"""Both kinds of producers, and each wait strategy."""

from __future__ import annotations

import pytest

from batchqueue_async.ring import (
    BlockingWait,
    BusySpinWait,
    MultiProducerSequencer,
    ProducerType,
    SingleProducerSequencer,
    SleepingWait,
    TimeoutBlockingWait,
    WaitStrategy,
    YieldingWait,
)

STRATEGIES: list[WaitStrategy] = [
    BlockingWait(),
    TimeoutBlockingWait(60.0),
    SleepingWait(),
    SleepingWait(retries=3, sleep=0.01),
    YieldingWait(),
    BusySpinWait(),
]


@pytest.fixture(params=STRATEGIES, ids=repr)
def wait(request: pytest.FixtureRequest) -> WaitStrategy:
    strategy: WaitStrategy = request.param
    return strategy


@pytest.fixture(params=list(ProducerType), ids=lambda kind: kind.name)
def producer(request: pytest.FixtureRequest) -> ProducerType:
    kind: ProducerType = request.param
    return kind


@pytest.fixture
def sequencer(
    producer: ProducerType, wait: WaitStrategy
) -> SingleProducerSequencer | MultiProducerSequencer:
    """A sequencer of each kind, with each wait strategy; 16 slots."""
    if producer is ProducerType.SINGLE:
        return SingleProducerSequencer(16, wait)
    return MultiProducerSequencer(16, wait)
