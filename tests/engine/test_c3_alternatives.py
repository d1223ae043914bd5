"""C3: who could be served by one of several waits for himself if all of them do."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from batchqueue_async._engine.handlers.wait_for_graph import find, is_stuck


@dataclass(eq=False)
class Somebody:
    """A drain task, say."""

    waiting: list["Waits"] = field(default_factory=list)

    def waits(self) -> list[Any]:
        return self.waiting


@dataclass(eq=False)
class Waits:
    """What is asked of a wait."""

    goals: Collection[Somebody]
    needs_one: bool = False

    def targets(self) -> Collection[Somebody]:
        return self.goals


def stuck(wait: Waits, *held_up: Somebody) -> bool:
    known: list[Any] = [wait, *held_up]
    return is_stuck(known[0], known[1:])


def found(start: Somebody, *held_up: Somebody) -> bool:
    known: list[Any] = [start, *held_up]
    return find(known[:1], lambda _: False, known[1:]) is not None


def test_one_who_may_go_on_is_enough() -> None:
    one, other = Somebody(), Somebody()
    wait = Waits((one, other), needs_one=True)
    one.waiting.append(wait)
    assert not stuck(wait)
    assert not found(one)


def test_none_who_may_go_on_is_too_few() -> None:
    one, other = Somebody(), Somebody()
    wait = Waits((one, other), needs_one=True)
    one.waiting.append(wait)
    other.waiting.append(Waits((one,)))
    assert stuck(wait)
    assert found(one)
    assert found(other)


def test_each_of_two_waits_for_both() -> None:
    one, other = Somebody(), Somebody()
    for each in (one, other):
        each.waiting.append(Waits((one, other), needs_one=True))
    assert stuck(one.waiting[0])


def test_a_third_who_waits_for_nobody_ends_it() -> None:
    one, other, third = Somebody(), Somebody(), Somebody()
    one.waiting.append(Waits((one, other), needs_one=True))
    other.waiting.append(Waits((one, third), needs_one=True))
    assert not stuck(one.waiting[0])


def test_who_needs_all_is_held_up_by_any() -> None:
    one, other, third = Somebody(), Somebody(), Somebody()
    one.waiting.append(Waits((one, other), needs_one=True))
    other.waiting.append(Waits((one, third)))
    assert stuck(one.waiting[0])


def test_who_is_served_waits_for_nobody() -> None:
    assert not stuck(Waits((), needs_one=True))


def test_one_who_is_to_wait_is_as_good_as_waiting() -> None:
    one, other = Somebody(), Somebody()
    one.waiting.append(Waits((one, other), needs_one=True))
    assert stuck(one.waiting[0], other)
    assert found(one, other)
    assert not found(one)
