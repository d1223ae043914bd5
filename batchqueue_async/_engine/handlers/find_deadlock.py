"""Finds who would wait for himself, in the wait-for graph, and has him refused.

Whoever is about to wait for some nodes asks whether one of them needs, perhaps by way
of others, a wait that only he could serve. If A waits for B, and B is about to wait for
A, then B's search starts at A, comes from A's wait to B, and finds B's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.wait_for_graph import Node, Wait


def find(
    start: Iterable[Node],
    matches: Callable[[Wait], bool],
    held_up: Collection[Node] = (),
) -> Wait | None:
    """Return a wait that one of these nodes needs, perhaps by way of others.

    Of a wait that several nodes could serve none is needed alone. Such a wait is
    returned if all of them wait for each other, or for those that are held up.
    """
    seen: set[Node] = set()
    choices: list[Wait] = []
    ahead = list(start)
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        for wait in node.waits():
            if wait.needs_one:
                choices.append(wait)
                continue
            if matches(wait):
                return wait
            ahead.extend(wait.targets())
    return next((each for each in choices if is_stuck(each, held_up)), None)


def is_stuck(wait: Wait, held_up: Collection[Node] = ()) -> bool:
    """Whether nobody whom it waits for can go on before it, one way or another.

    All who are within its reach are stuck until they are seen not to be: who waits for
    nobody goes on, and so does who waits only for such as go on. Who needs one of
    several goes on with the first of them. What is left waits for itself, or for those
    that are held up by what is not known here.
    """
    return bool(_stuck_together(wait, held_up))


def _stuck_together(wait: Wait, held_up: Collection[Node] = ()) -> list[Wait]:
    """Return a wait that is stuck, and those that it is stuck with; else nothing."""
    waits = _within_reach(wait)
    stuck = set(waits)
    targets = {each: each.targets() for known in waits.values() for each in known}
    targets[wait] = wait.targets()

    def goes_on(each: Wait) -> bool:
        goals = targets[each]
        count = len(stuck.intersection(goals))
        return not count or (each.needs_one and count < len(goals))

    ahead = stuck.difference(held_up)
    while free := [node for node in ahead if all(map(goes_on, waits[node]))]:
        stuck.difference_update(free)
        ahead.difference_update(free)
    if goes_on(wait):
        return []
    held = (each for node in waits if node in stuck for each in waits[node])
    return [wait, *(each for each in held if not goes_on(each))]


def _within_reach(wait: Wait) -> dict[Node, list[Wait]]:
    """Return whom a wait waits for, also by way of others, and what each waits for."""
    waits: dict[Node, list[Wait]] = {}
    ahead = list(wait.targets())
    while ahead:
        node = ahead.pop()
        if node not in waits:
            waits[node] = list(node.waits())
            for each in waits[node]:
                ahead.extend(each.targets())
    return waits


def refuse_cycles(node: Node) -> None:
    """Refuse who waits for this node, and is waited for by it as of now."""
    while (wait := find((node,), lambda each: node in each.targets())) is not None:
        together = _stuck_together(wait) if wait.needs_one else (wait,)
        refused = next((each for each in together if each.is_refusable), None)
        if refused is None:
            return
        refused.refuse()
