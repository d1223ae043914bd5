"""Graphs of handlers: who comes after whom, who gates, and what is refused."""

from __future__ import annotations

import asyncio

import pytest

from batchqueue_async.ring import (
    BlockingWait,
    Disruptor,
    InvalidArgument,
    ProducerType,
    RingError,
    RingHalted,
    SleepingWait,
)
from tests.ring.events import Event, Recorder, fill, function, mark, small, turns


async def test_a_handler_comes_after_all_it_depends_on() -> None:
    order: dict[str, dict[int, int]] = {name: {} for name in "abcde"}
    clock = 0

    class Ticking(Recorder):
        def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
            nonlocal clock
            clock += 1
            order[self.name][sequence] = clock

    a, b, c, d, e = (Ticking(name) for name in "abcde")
    disruptor = small(8)
    disruptor.handle_events_with(a, b).then(c)
    disruptor.after(a).handle_events_with(d)
    disruptor.after(c, d).then(e)
    async with disruptor as ring:
        await ring.publish_events(fill, range(50))

    for sequence in range(50):
        at = {name: order[name][sequence] for name in order}
        assert at["c"] > max(at["a"], at["b"])
        assert at["d"] > at["a"]
        assert at["e"] > max(at["c"], at["d"])


async def test_dependents_wait_for_a_slow_handler() -> None:
    gate = asyncio.Event()
    slow, quick, after = Recorder("slow", gate=gate), Recorder("quick"), Recorder()
    disruptor = small(4)
    disruptor.handle_events_with(slow, quick).then(after)
    async with disruptor as ring:
        await ring.publish_events(fill, range(4))
        await turns()
        assert quick.values == [*range(4)]
        assert after.values == slow.values == []
        assert not ring.try_publish_event(mark)
        gate.set()
    assert after.values == [*range(4)]


def test_only_the_last_ones_gate_the_producers() -> None:
    a, b, c, d = (function(name) for name in "abcd")
    disruptor = small()

    def gating() -> list[str]:
        return [each.name for each in disruptor.stats().consumers if each.is_gating]

    group = disruptor.handle_events_with(a, b)
    assert gating() == ["a", "b"]
    group.then(c)
    assert gating() == ["c"]
    disruptor.after(a).handle_events_with_worker_pool(d)
    assert gating() == ["c", "d"]


async def test_groups_can_be_joined() -> None:
    a, b, c = (Recorder(name) for name in "abc")
    disruptor = small()
    disruptor.handle_events_with(a).and_(disruptor.handle_events_with(b)).then(c)
    assert "c (after a, b)" in disruptor.describe()


def test_groups_of_two_rings_are_not_joined() -> None:
    """Whoever came after both would wait for sequences of another ring."""
    one = small().handle_events_with(function("a"))
    other = small().handle_events_with(function("b"))
    with pytest.raises(RingError, match=r"^groups of two rings cannot be joined"):
        one.and_(other)


def test_a_cycle_is_refused_and_shown() -> None:
    a, b, c = (function(name) for name in "abc")
    disruptor = small()
    group = disruptor.handle_events_with(a).then(b).then(c)
    with pytest.raises(RingError, match=r"^this would be a cycle: a -> b -> c -> a$"):
        group.then(a)
    with pytest.raises(RingError, match=r"^this would be a cycle: c -> c$"):
        group.handle_events_with_worker_pool(c)


def test_a_graph_with_very_many_paths_or_stages_is_no_trouble() -> None:
    wide, long = small(), small()
    first = [function("a"), function("b"), function("c")]
    group = wide.handle_events_with(*first)
    for _ in range(30):  # 3 ** 30 paths.
        group = group.then(*(function(name) for name in "abc"))
    assert "    " * 31 + "a-31 (after " in wide.describe()
    with pytest.raises(RingError, match=r"^this would be a cycle: a -> "):
        group.then(first[0])

    group = long.handle_events_with(first[0])
    for _ in range(1200):  # More than Python's recursion limit.
        group = group.then(function("next"))
    assert "(after next-1199)" in long.describe()
    with pytest.raises(RingError, match=r"^this would be a cycle: a -> next -> "):
        group.then(first[0])


def test_a_handler_used_twice_is_refused() -> None:
    a, b = function("a"), function("b")
    disruptor = small()
    with pytest.raises(RingError, match=r"^handler a is used twice$"):
        disruptor.handle_events_with(a, a)
    disruptor.handle_events_with(a)
    with pytest.raises(RingError, match=r"^handler a is used twice$"):
        disruptor.handle_events_with(b, a)
    with pytest.raises(RingError, match=r"^handler a is used twice$"):
        disruptor.handle_events_with_worker_pool(b, a)
    disruptor.handle_events_with(b)  # The refusals left nothing behind.
    assert [each.name for each in disruptor.stats().consumers] == ["a", "b"]


def test_handlers_are_told_apart_by_identity() -> None:
    class Equal(Recorder):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    disruptor = small()
    disruptor.handle_events_with(Equal("x"), Equal("x")).then(Equal("x"))
    assert [each.name for each in disruptor.stats().consumers] == ["x", "x-2", "x-3"]


def test_methods_of_one_object_are_different_handlers() -> None:
    recorder = Recorder()
    disruptor = small()
    disruptor.handle_events_with(recorder._record)
    disruptor.after(recorder._record)
    with pytest.raises(RingError, match="used twice"):
        disruptor.handle_events_with(recorder._record)


def test_after_needs_a_handler_of_this_ring() -> None:
    with pytest.raises(InvalidArgument, match=r"^a is no handler of this ring$"):
        small().after(function("a"))


async def test_events_published_before_the_start_are_handled() -> None:
    disruptor = small(4)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    for _ in range(4):
        assert disruptor.ring.try_publish_event(mark)
    assert not disruptor.ring.try_publish_event(mark)
    async with disruptor:
        await turns()
        assert handler.sequences == [*range(4)]


async def test_handlers_added_before_the_start_start_at_the_cursor_too() -> None:
    early, late = Recorder("early"), Recorder("late")
    disruptor = small()
    disruptor.handle_events_with(early)
    await disruptor.ring.publish_events(fill, range(3))
    disruptor.handle_events_with(late)
    async with disruptor as ring:
        await ring.publish_event(fill, 3)
    assert early.values == [*range(4)]
    assert late.values == [3]


async def test_handlers_added_while_running_start_at_the_cursor() -> None:
    early, late, pool = Recorder("early"), Recorder("late"), Recorder("pool")
    disruptor = small(8)
    disruptor.handle_events_with(early)
    async with disruptor as ring:
        await ring.publish_events(fill, range(5))
        await turns()
        disruptor.handle_events_with(late)
        disruptor.handle_events_with_worker_pool(pool)
        await ring.publish_events(fill, range(5, 30))

    assert early.values == [*range(30)]
    assert late.values == pool.values == [*range(5, 30)]


async def test_a_handler_added_late_never_lets_the_one_before_it_be_overtaken() -> None:
    """It starts at the cursor, ahead of the slow one that it comes after."""
    gate = asyncio.Event()
    slow, late = Recorder("slow", gate=gate), Recorder("late")
    disruptor = small(4)
    disruptor.handle_events_with(slow)
    async with disruptor as ring:
        await ring.publish_events(fill, range(3))
        await turns()
        disruptor.after(slow).handle_events_with(late)
        assert ring.remaining_capacity() == 1
        assert ring.try_publish_event(fill, 3)
        assert not ring.try_publish_event(fill, "too early")
        gate.set()
        await ring.publish_events(fill, range(4, 20))
    assert slow.values == [*range(20)]
    assert late.values == [*range(3, 20)]


async def test_a_late_handler_misses_nothing_when_a_claim_is_given_back() -> None:
    """Its start must not be a sequence that is claimed again, by somebody else."""
    gate = asyncio.Event()
    first, late = Recorder("first", gate=gate), Recorder("late")
    disruptor = small(2)
    disruptor.handle_events_with(first)
    async with disruptor as ring:
        await ring.publish_events(fill, "ab")
        impatient = asyncio.create_task(ring.claim(2))
        await turns()
        gate.set()
        while ring.cursor < 3:  # Until it is granted; it has not run then.
            await turns(1)
        impatient.cancel()
        disruptor.handle_events_with(late)
        await asyncio.gather(impatient, return_exceptions=True)
        assert ring.cursor == 1
        await ring.publish_events(fill, "cd")
    assert first.values == [*"abcd"]
    assert late.values == [*"cd"]


async def test_a_closed_ring_takes_no_handlers() -> None:
    disruptor = small()
    async with disruptor:
        pass
    with pytest.raises(RingHalted, match="handlers come too late"):
        disruptor.handle_events_with(Recorder())


def test_describe_draws_text_and_mermaid() -> None:
    journal, replicate, apply = map(function, ("journal", "replicate", "apply"))
    disruptor = Disruptor(Event, 64, producer=ProducerType.SINGLE, wait=SleepingWait())
    disruptor.handle_events_with(journal, replicate).then(apply)
    disruptor.after(journal).handle_events_with_worker_pool(
        function('"quoted"'), function("other")
    )
    assert disruptor.describe().splitlines() == [
        "ring of 64, SINGLE producer, SleepingWait",
        "    journal",
        "    replicate",
        "        apply (after journal, replicate) [gates producers]",
        '        "quoted": 2 workers (after journal) [gates producers]',
        "",
        "```mermaid",
        "flowchart LR",
        '    ring[("ring of 64, SINGLE producer, SleepingWait")]',
        '    n1["journal"]',
        '    n2["replicate"]',
        '    n3["apply"]',
        '    n4["#quot;quoted#quot;: 2 workers"]',
        "    ring --> n1",
        "    ring --> n2",
        "    n1 --> n3",
        "    n2 --> n3",
        "    n1 --> n4",
        "    n3 -.-> ring",
        "    n4 -.-> ring",
        "```",
    ]


def test_names_are_no_markup() -> None:
    disruptor = small()
    disruptor.handle_events_with(lambda *_: None, function('say "a"'))
    text = disruptor.describe()
    assert 'n1["#lt;lambda#gt;"]' in text
    assert 'n2["say #quot;a#quot;"]' in text


async def test_stats_show_cursor_lag_and_waits() -> None:
    gate = asyncio.Event()
    disruptor = small(4, wait=BlockingWait())
    disruptor.handle_events_with(Recorder("slow", gate=gate), Recorder("quick"))
    async with disruptor as ring:
        await ring.publish_events(fill, range(3))
        waiting = asyncio.create_task(ring.claim(2))
        await turns()
        stats = disruptor.stats()
        gate.set()
        ring.publish(await waiting - 1, waiting.result())

    assert (stats.capacity, stats.cursor, stats.claimed, stats.published) == (
        4,
        2,
        2,
        2,
    )
    assert (stats.remaining_capacity, stats.claims_waiting) == (1, 1)
    slow, quick = stats.consumers
    assert (slow.name, slow.sequence, slow.lag, slow.is_gating) == ("slow", -1, 3, True)
    assert (quick.name, quick.sequence, quick.lag) == ("quick", 2, 0)
    assert disruptor.stats().claims_waited == 1
