"""Attempts of any name, and what may be staged in them."""

import pytest

from batchqueue_async.sinks.staged import Attempt
from tests.sinks.conftest import NewStagedSink
from tests.sinks.places import EPOCH, Place, batch, sealed
from tests.sinks.test_staged import seal_late

pytestmark = [pytest.mark.real_time]

NAMES = ("attempt-1", "attempt-2", "Attempt-1", "a/b", "../x", "..", "'; --", "ü" * 300)


def named(name: str, run: str = "run") -> Attempt:
    return Attempt(EPOCH, run, 0, name)


async def test_names_need_only_be_unique(
    place: Place, open_sink: NewStagedSink
) -> None:
    sink = open_sink()
    tokens = [await sealed(sink, named(name), n) for n, name in enumerate(NAMES)]
    late, abandoned = named("late"), named("abandoned")
    await sink.stage(late, [batch(100)])
    await sink.stage(abandoned, [batch(101)])
    await sink.abandon(abandoned)

    assert await open_sink().publish(EPOCH, tokens)
    await seal_late(sink, late)

    assert await place.ids() == [*range(len(NAMES))]
    assert await place.traces() == 0


async def test_a_run_of_any_name_is_discarded_alone(
    place: Place, open_sink: NewStagedSink
) -> None:
    for run in NAMES:
        await sealed(open_sink(), named(f"of {run}", run), 100)
    kept = await sealed(open_sink(), named("kept", "."), 1)

    for run in NAMES:
        await open_sink().discard(EPOCH, run)
    assert await open_sink().publish(EPOCH, [kept])

    assert await place.ids() == [1]
    assert await place.traces() == 0
