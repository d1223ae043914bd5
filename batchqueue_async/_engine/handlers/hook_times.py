"""When `on_idle` and `on_tick` are due, of the handlers whose hooks a drain task calls.

A heap finds what is due. To look at all handlers in each cycle would take a processor
where there are hundreds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerLock
from batchqueue_async._engine.handlers.ticks import Ticks
from batchqueue_async._loop_time import LONG_AGO

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registration import Registration
    from batchqueue_async._engine.queue_parts import Parts
    from batchqueue_async._policies.idle_backoff import IdleBackoff

# All types of a handler share its lock, which stands for its `on_idle`, and its ticks.
HookKey: TypeAlias = "HandlerLock | Ticks"

# Entries of the heap that may be superseded before it is made anew.
_SPARE = 64


def next_idle(lock: HandlerLock, naps: IdleBackoff) -> float:
    """Return when a handler's `on_idle` may be called again, if no batch comes."""
    return lock.idled_at + naps.delay(max(0, lock.idle_calls - 1))


class HookTimes:
    """The hooks that one drain task calls, by when it has to look at them next.

    Invariant: the heap has an entry for each hook at its time in `_times`, and maybe
    entries that are superseded: they are passed over. A hook is in the heap before its
    time is noted, so a signal handler that raises in between loses none.
    """

    __slots__ = (
        "_drain_task",
        "_heap",
        "_parts",
        "_pushed",
        "_put_off",
        "_times",
        "_version",
        "of",
    )

    def __init__(self, parts: Parts, drain_task: int) -> None:
        self._parts = parts
        self._drain_task = drain_task
        self._times: dict[HookKey, float] = {}
        # Among equals the first one that was pushed is due first.
        self._heap: list[tuple[float, int, HookKey]] = []
        self._pushed = 0
        # How often a hook was due, and could not be called, since it last was.
        self._put_off: dict[HookKey, int] = {}
        # Of handlers and ownership, as of the last look at both.
        self._version = (-1, -1)
        # The registrations of each hook's handler, those of other drain tasks included.
        self.of: dict[HookKey, list[Registration]] = {}

    def next_due(self) -> float:
        """Return when to look at a hook next, at the earliest; inf if there is none."""
        self._renew()
        heap, times = self._heap, self._times
        while heap and times[heap[0][2]] != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else math.inf

    def due(self, now: float) -> list[HookKey]:
        """Return the hooks to look at; each of them has to be `put` again."""
        if self.next_due() > now:
            return []
        heap, found, places = self._heap, [], [0]
        # What is later than an entry is below it, so that few others are looked at.
        for place in places:
            if place < len(heap) and heap[place][0] <= now:
                found.append(heap[place])
                places += (2 * place + 1, 2 * place + 2)
        found.sort()
        return [key for when, _, key in found if self._times[key] == when]

    def put_off(self, key: HookKey, now: float) -> None:
        """Have a hook that could not be called looked at again, less and less often."""
        count = self._put_off[key]
        self.put(key, now + self._parts.config.idle.delay(count))
        self._put_off[key] = count + 1

    def put(self, key: HookKey, when: float) -> None:
        """Have a hook looked at again at this time."""
        if key in self._times and self._times[key] != when:
            self._put_off[key] = 0
            self._pushed += 1
            heappush(self._heap, (when, self._pushed, key))
            self._times[key] = when
            if len(self._heap) > 2 * len(self._times) + _SPARE:
                self._make_heap()

    def got_items(self, handlers: Iterable[Registration], now: float) -> None:
        """Have the `on_idle`s of these called in the first pause from now on."""
        for handler in handlers:
            lock, ticks = handler.lock, handler.ticks
            lock.idle_calls = 0
            due = max(now, next_idle(lock, self._parts.config.idle))
            if due < self._times.get(lock, due):
                self.put(lock, due)
            elif handler.on_idle is not None and lock not in self._times:
                # Its items come to several drain tasks, and another one calls it.
                owner = self._parts.hooks.home_owner(handler)
                if owner is not None:
                    self._parts.tasks.drain_tasks[owner].look_at_hook(lock, due)
            if ticks is not None and ticks.due is None and handler.is_open:
                # It was opened just now, maybe for a drain task that calls its hooks.
                for drain_task in self._parts.tasks.drain_tasks:
                    drain_task.look_at_hook(ticks, now)

    def put_forward(self, key: HookKey, when: float) -> bool:
        """Have a hook looked at no later than this; returns whether that is news."""
        is_news = self._times.get(key, when) > when
        if is_news:
            self.put(key, when)
        return is_news

    def _renew(self) -> None:
        handlers, ownership = self._parts.handlers, self._parts.ownership
        version = (handlers.version, ownership.version)
        if version == self._version:
            return
        every: dict[HookKey, list[Registration]] = {}
        own: set[HookKey] = set()
        owns = self._parts.hooks.owns_hooks_of
        for each in handlers:
            if each.has_hooks:
                hooks = each.lock if each.on_idle is not None else None, each.ticks
                keys = [key for key in hooks if key is not None]
                for key in keys:
                    every.setdefault(key, []).append(each)
                if owns(self._drain_task, each):
                    own.update(keys)
        of = {key: types for key, types in every.items() if key in own}
        times = {key: self._times.get(key, LONG_AGO) for key in of}
        self._put_off = {key: self._put_off.get(key, 0) for key in of}
        self.of, self._times = of, times
        self._make_heap()
        self._version = version

    def _make_heap(self) -> None:
        times = enumerate(self._times.items())
        heap = [(when, number, key) for number, (key, when) in times]
        heapify(heap)
        self._heap, self._pushed = heap, len(heap)
