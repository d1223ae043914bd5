"""What killed, late and lost attempts have staged goes; what others need stays."""

from typing import Any

import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.staged import Attempt, StagedSink
from tests.sinks.conftest import NewStagedSink
from tests.sinks.places import EPOCH, Place, attempt, batch, sealed

pytestmark = [pytest.mark.real_time]

NEXT = Epoch(EPOCH.query, EPOCH.batch + 1)
OTHER = Epoch("another query", EPOCH.batch)


async def test_killed_attempts_go_with_the_publish(
    place: Place, open_sink: NewStagedSink
) -> None:
    """One died while it staged, one after it had sealed; neither closed anything."""
    staging, after_seal = open_sink(), open_sink()
    await staging.stage(attempt(0), [batch(1)])
    await place.kill(staging)
    await sealed(after_seal, attempt(1), 2)
    await place.kill(after_seal)
    tokens = [await sealed(open_sink(), attempt(n), n + 1) for n in range(2)]

    assert await open_sink().publish(EPOCH, tokens)

    assert await place.ids() == [1, 2]
    assert await place.traces() == 0


async def test_killed_attempts_go_with_the_discard(
    place: Place, open_sink: NewStagedSink
) -> None:
    killed = open_sink()
    await killed.stage(attempt(0), [batch(1)])
    await place.kill(killed)
    await sealed(open_sink(), attempt(1), 2)

    await open_sink().discard(EPOCH, "run")

    assert await place.ids() == []
    assert await place.traces() == 0


async def test_the_end_of_an_epoch_spares_the_others(
    place: Place, open_sink: NewStagedSink
) -> None:
    """The same query's next batch, and another query, are at work meanwhile."""
    begun = {epoch: attempt(0, "run", epoch) for epoch in (NEXT, OTHER)}
    sinks = {epoch: open_sink() for epoch in begun}
    for epoch, mine in begun.items():
        await sinks[epoch].stage(mine, [batch(epoch.batch * 10)])
    done = [await sealed(open_sink(), attempt(1, "run", e), e.batch) for e in begun]

    await open_sink().publish(EPOCH, [await sealed(open_sink(), attempt(), 1)])
    await open_sink().discard(Epoch("a third query", 7), "run")

    for token, (epoch, mine) in zip(done, begun.items(), strict=True):
        assert await open_sink().publish(epoch, [token, await sinks[epoch].seal(mine)])
    assert await place.ids() == [1, 7, 8, 70, 80]
    assert await place.traces() == 0


async def refused(sink: StagedSink[Any], late: Attempt) -> None:
    with pytest.raises((FileNotFoundError, BatchQueueError)):
        await sink.stage(late, [batch(1)])
    await sink.abandon(late)


@pytest.mark.parametrize("ending", ["discard", "publish"])
async def test_who_begins_after_the_end_of_an_announced_run_is_refused(
    place: Place, open_sink: NewStagedSink, ending: str
) -> None:
    """Spark aborts a job while its last tasks have not heard of it."""
    driver: Any = open_sink()
    await driver.announce(EPOCH, "run")
    token = await sealed(open_sink(), attempt(is_announced=True), 1)

    if ending == "publish":
        await driver.publish(EPOCH, [token])
    else:
        await driver.discard(EPOCH, "run")
    await refused(open_sink(), attempt(1, is_announced=True))

    assert await place.ids() == ([1] if ending == "publish" else [])
    assert await place.traces() == 0


async def test_who_begins_after_the_publish_leaves_nothing(
    place: Place, open_sink: NewStagedSink
) -> None:
    """A micro-batch's run is never announced: an executor was thought dead."""
    await open_sink().publish(EPOCH, [await sealed(open_sink(), attempt(), 1)])
    late = attempt()

    assert (await sealed(open_sink(), late, 1)).rows == 0

    assert await place.ids() == [1]
    assert await place.traces() == 0


async def test_what_nobody_comes_back_for_goes_after_a_week(
    place: Place, open_sink: NewStagedSink
) -> None:
    """A deleted checkpoint, or a batch write whose driver died: nobody asks for it."""
    await sealed(open_sink(), attempt(0, "run", OTHER), 1)
    await place.age(days=8)
    await sealed(open_sink(), attempt(0, "run", NEXT), 2)
    kept = await place.traces() // 2

    await open_sink().publish(EPOCH, [await sealed(open_sink(), attempt(), 3)])

    assert await place.ids() == [3]
    assert await place.traces() == kept > 0


async def test_what_is_six_days_old_stays(
    place: Place, open_sink: NewStagedSink
) -> None:
    token = await sealed(open_sink(), attempt(0, "run", NEXT), 2)
    await place.age(days=6)

    await open_sink().publish(EPOCH, [await sealed(open_sink(), attempt(), 3)])

    assert await open_sink().publish(NEXT, [token])
    assert await place.ids() == [2, 3]


async def test_what_was_removed_for_its_age_is_not_sealed(
    place: Place, open_sink: NewStagedSink
) -> None:
    """Its task works on, or stood still: a receipt for nothing would lose its rows."""
    slow, mine = open_sink(), attempt(0, "run", OTHER)
    await slow.stage(mine, [batch(1)])
    await place.age(days=8)
    await open_sink().publish(EPOCH, [await sealed(open_sink(), attempt(), 3)])

    with pytest.raises((FileNotFoundError, BatchQueueError)):
        await slow.seal(mine)
    await slow.abandon(mine)
    again = await sealed(open_sink(), attempt(0, "run", OTHER), 1)
    assert await open_sink().publish(OTHER, [again])

    assert await place.ids() == [1, 3]
    assert await place.traces() == 0
