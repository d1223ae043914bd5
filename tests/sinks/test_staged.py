"""Every staged sink keeps the contract, whenever its processes die."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.staged import Attempt, StagedRowsMissing, StagedSink
from tests.sinks.conftest import NewStagedSink
from tests.sinks.places import EPOCH, Place, attempt, batch, sealed

pytestmark = [pytest.mark.real_time]


async def test_an_epoch_appears_at_once(place: Place, open_sink: NewStagedSink) -> None:
    first, second, driver = open_sink(), open_sink(), open_sink()
    assert isinstance(first, StagedSink)
    mine, other = attempt(0), attempt(1)
    await asyncio.gather(first.stage(mine, [batch(1)]), second.stage(other, [batch(3)]))
    await first.stage(mine, [batch(2)])
    tokens = [await first.seal(mine), await second.seal(other)]
    assert [token.rows for token in tokens] == [2, 1]
    assert await place.ids() == []
    assert not await driver.is_published(EPOCH)

    assert await driver.publish(EPOCH, tokens)

    assert await place.ids() == [1, 2, 3]
    assert await driver.is_published(EPOCH)
    assert await place.leftovers() == 0


async def test_an_epoch_is_published_once(
    place: Place, open_sink: NewStagedSink
) -> None:
    """The driver died after `publish`; the restart divides the rows otherwise."""
    await open_sink().publish(EPOCH, [await sealed(open_sink(), attempt(), 1, 2, 3)])
    again = open_sink()
    new = [
        await sealed(again, attempt(0, "run 2"), 1),
        await sealed(again, attempt(1, "run 2"), 2, 3),
    ]

    assert not await open_sink().publish(EPOCH, new)

    assert await place.ids() == [1, 2, 3]
    assert await place.leftovers() == 0


async def test_a_restart_with_other_partitions_loses_nothing(
    place: Place, open_sink: NewStagedSink
) -> None:
    """The driver died before `publish`: what it staged is nobody's."""
    await sealed(open_sink(), attempt(0, "run 1"), 1, 2)
    killed = open_sink()
    await killed.stage(attempt(1, "run 1"), [batch(3, 4)])
    new = [await sealed(open_sink(), attempt(n, "run 2"), n + 1) for n in range(4)]

    assert await open_sink().publish(EPOCH, new)

    assert await place.ids() == [1, 2, 3, 4]
    await killed.close()
    assert await place.leftovers() == 0


async def test_only_one_attempt_of_a_partition_counts(
    place: Place, open_sink: NewStagedSink
) -> None:
    await sealed(open_sink(), attempt(0), 1, 2)
    token = await sealed(open_sink(), attempt(0), 1, 2)

    await open_sink().publish(EPOCH, [token])

    assert await place.ids() == [1, 2]
    assert await place.leftovers() == 0


async def test_who_seals_after_the_publish_leaves_nothing(
    place: Place, open_sink: NewStagedSink
) -> None:
    late, mine = open_sink(), attempt(0)
    await late.stage(mine, [batch(1)])
    await open_sink().publish(EPOCH, [await sealed(open_sink(), attempt(0), 1)])

    await seal_late(late, mine)

    assert await place.ids() == [1]
    assert await place.leftovers() == 0


async def test_who_seals_after_the_discard_leaves_nothing(
    place: Place, open_sink: NewStagedSink
) -> None:
    late, mine = open_sink(), attempt(0)
    await late.stage(mine, [batch(1)])
    await sealed(open_sink(), attempt(1), 2)

    await open_sink().discard(EPOCH, "run")
    await seal_late(late, mine)

    assert await place.ids() == []
    assert await place.leftovers() == 0


async def seal_late(sink: StagedSink[Any], mine: Attempt) -> None:
    """Either answer is right: nobody asks for this token."""
    try:
        token = await sink.seal(mine)
    except (FileNotFoundError, BatchQueueError):
        await sink.abandon(mine)
    else:
        assert token.rows == 0


async def test_a_discard_spares_other_runs(
    place: Place, open_sink: NewStagedSink
) -> None:
    """An old driver gives up while its successor is at work."""
    await sealed(open_sink(), attempt(0, "old"), 1)
    token = await sealed(open_sink(), attempt(0, "new"), 1)

    await open_sink().discard(EPOCH, "old")
    await open_sink().publish(EPOCH, [token])
    await open_sink().discard(EPOCH, "new")

    assert await place.ids() == [1]
    assert await place.leftovers() == 0


async def test_an_abandoned_attempt_leaves_nothing(
    place: Place, open_sink: NewStagedSink
) -> None:
    sink, mine = open_sink(), attempt()
    await sink.stage(mine, [batch(1)])

    await sink.abandon(mine)
    await sink.abandon(attempt())

    assert await place.leftovers() == 0


async def test_lost_rows_are_not_published(
    place: Place, open_sink: NewStagedSink
) -> None:
    token = await sealed(open_sink(), attempt(), 1, 2)
    await place.lose_staged()
    driver = open_sink()

    with pytest.raises(StagedRowsMissing, match="batch 7 of query a query: 2 rows"):
        await driver.publish(EPOCH, [token])

    assert not await driver.is_published(EPOCH)
    assert await place.ids() == []


async def test_of_two_publishers_one_wins(
    place: Place, open_sink: NewStagedSink
) -> None:
    runs = [f"run {n}" for n in range(4)]
    tokens = [await sealed(open_sink(), attempt(0, run), 1, 2) for run in runs]

    won = await asyncio.gather(
        *(open_sink().publish(EPOCH, [token]) for token in tokens),
        return_exceptions=True,
    )

    # A loser may find its rows gone, which ends its driver; the rows are there once.
    assert won.count(True) == 1
    assert await place.ids() == [1, 2]
    assert await place.leftovers() == 0


async def test_an_epoch_without_rows_has_a_fence(
    place: Place, open_sink: NewStagedSink
) -> None:
    sink = open_sink()
    token = await sink.seal(attempt())

    assert await sink.publish(EPOCH, [token])
    assert not await sink.publish(EPOCH, [])

    assert await place.ids() == []
    assert await sink.is_published(EPOCH)
    assert not await sink.is_published(Epoch("a query", 8))


async def test_many_epochs_through_one_sink(
    place: Place, open_sink: NewStagedSink
) -> None:
    sink = open_sink()
    epochs: Iterable[Epoch] = [Epoch("q/../x '\"", n) for n in range(3)]
    for epoch in epochs:
        token = await sealed(sink, attempt(0, "r", epoch), epoch.batch)
        assert await sink.publish(epoch, [token])

    assert await place.ids() == [0, 1, 2]
    assert await place.leftovers() == 0


async def test_foreign_tokens_are_refused(open_sink: NewStagedSink) -> None:
    sink = open_sink()
    token = await sealed(sink, attempt(), 1)

    with pytest.raises(ValueError, match="tokens must be of batch 8"):
        await sink.publish(Epoch("a query", 8), [token])
    with pytest.raises(ValueError, match="one per attempt"):
        await sink.publish(EPOCH, [token, token])


async def test_tokens_may_come_from_a_generator(
    place: Place, open_sink: NewStagedSink
) -> None:
    """Its rows were left out, and the epoch was published all the same."""
    sink = open_sink()
    tokens = [await sealed(sink, attempt(n), n) for n in range(3)]
    one_by_one: Any = (token for token in tokens)

    assert await sink.publish(EPOCH, one_by_one)

    assert await place.ids() == [0, 1, 2]
