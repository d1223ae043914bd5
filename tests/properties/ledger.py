"""What is known of each item, by looking on after every single step.

Arrival is read from the partitions; taking, from the counts of in-flight items; what
handlers and `on_error` get, they say themselves. Nothing is asked of the engine that
`stats()` does not say, but which items wait.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from batchqueue_async._engine.partitions.accounts import Accounts
from batchqueue_async._engine.partitions.partition import Partition
from tests.properties.gated_handler import Call, Item


class Ledger:
    """The items of one queue: which arrived where and when, and how they ended."""

    def __init__(self, *, by_type: bool, retries: bool, waits: bool = True) -> None:
        self.by_type = by_type
        self._retries = retries
        self.waits = waits
        self.partitions: list[Partition[Item]] = []
        self.violations: list[str] = []
        self.unordered: set[int] = set()
        """Items of a `produce_many` over several partitions: it waits in one line
        after the other, so its numbers do not tell its turn in each."""
        self.arrived: defaultdict[int, list[Item]] = defaultdict(list)
        self.place: dict[int, int] = {}
        self.calls: list[Call] = []
        self.succeeded_items: set[int] = set()
        self.errored: set[int] = set()
        self.returned: set[int] = set()
        self._perhaps: set[int] = set()
        self._owed: set[int] = set()
        """What failed while other items of its batch were handled..."""
        self._told: set[int] = set()
        """...and those, which counts also where the call was to end."""
        self._unaware: dict[int, list[Item]] = {}
        """What may be taken back: its producer has not run since it was placed."""
        self._homes: dict[type, int] = {}
        self._newest: defaultdict[int, int] = defaultdict(lambda: -1)
        self._owners: dict[int, int | None] = {}
        self._takers: dict[int, int | None] = {}
        self._delivered: defaultdict[tuple[object, int], list[int]] = defaultdict(list)

    def demand(self, holds: object, message: str) -> None:
        if not holds:
            self.violations.append(message)

    def mixed(self, items: Iterable[Item]) -> None:
        """These are of one `produce_many` over several partitions."""
        self.unordered.update(item.number for item in items)

    def open_numbers(self) -> set[int]:
        """The items that wait, or that a handler has and has not ended with."""
        waiting = [item for each in self.partitions for item in each.items]
        taken = [item for call in self.calls for item in call.batch]
        numbers = {item.number for item in (*waiting, *taken)} | self._owed
        return numbers - self.succeeded_items - self.errored - self.returned

    def observe(self, owner_of: Callable[[int], int | None]) -> None:
        """Look on after a step."""
        for partition in self.partitions:
            _check_sum(partition.accounts)
            self._see_arrivals(partition)
            owner = owner_of(partition.index)
            self._see_takes(partition.index, partition.accounts, owner)
        assert not self.violations, self.violations

    def _see_arrivals(self, partition: Partition[Item]) -> None:
        index, waiting = partition.index, partition.items
        arrived = self.arrived[index]
        self._see_what_was_taken_back(partition)
        new = partition.accepted - len(arrived)
        if new:
            assert 0 < new <= len(waiting), f"A1: {new} of {len(waiting)} are new"
            for item in list(waiting)[-new:]:
                self._arrive(index, item)
        if waiting:
            tail = arrived[-len(waiting) :]
            assert list(waiting) == tail, f"B1: {waiting} wait, arrived as {tail}"

    def _see_what_was_taken_back(self, partition: Partition[Item]) -> None:
        index, waiting = partition.index, list(partition.items)
        for item in self._unaware.get(index, ()):
            if item not in waiting:
                self.arrived[index].remove(item)
                del self.place[item.number]
        first = partition.accounts.taken_out
        line = partition.line
        self._unaware[index] = [
            waiting[place - first - bisect(line.withdrawn, place)]
            for place in (line.unaware or {}).values()
        ]

    def _arrive(self, index: int, item: Item) -> None:
        assert item.number not in self.place, f"A1: {item} was accepted twice"
        self.place[item.number] = index
        self.arrived[index].append(item)
        if self.by_type:
            home = self._homes.setdefault(type(item), index)
            assert home == index, f"B2: {item} in partition {index}, not {home}"
        if item.number not in self.unordered:
            assert item.number > self._newest[index], f"B1: {item} was overtaken"
            self._newest[index] = item.number

    def _see_takes(self, index: int, accounts: Accounts, owner: int | None) -> None:
        before = self._owners.get(index, owner)
        self._owners[index] = owner
        if not accounts.in_flight:
            self._takers.pop(index, None)
            return
        if index not in self._takers:
            assert before is not None, "E4: taken from in a handoff"
            self._takers[index] = before
        taker = self._takers[index]
        assert owner in (taker, None), f"E3: {owner} owns what {taker} has in flight"

    def entered(self, call: Call) -> None:
        self.calls.append(call)
        for item in call.batch:
            index = self.place.get(item.number)
            self.demand(index is not None, f"A1: {item} was never accepted")
            self.demand(not self.is_settled(item), f"A1: {item} is settled already")
            if index is not None:
                self._see_delivery(call, item, index)

    def _see_delivery(self, call: Call, item: Item, index: int) -> None:
        taker = self._takers.get(index, self._owners.get(index))
        self.demand(
            call.drain_task == taker,
            f"E4: drain task {call.drain_task} took {item} from partition {index}, "
            f"which is {taker}'s",
        )
        delivered = self._delivered[call.handler, index]
        if delivered and item.number in delivered and self._retries:
            # Again: then nothing younger has been delivered in between.
            position = delivered.index(item.number)
            ended = self.succeeded_items | self.errored | self._told
            late = [n for n in delivered[:position] if n not in ended]
            batch = {each.number for each in call.batch}
            self.demand(set(late) <= batch, f"B1: {item} again before {late}")
            return
        numbers = [each.number for each in self.arrived[index]]
        if delivered:
            is_next = numbers.index(item.number) > numbers.index(delivered[-1])
            self.demand(is_next, f"B1: {item} was delivered after {delivered[-1]}")
        ended = self.succeeded_items | self.errored | {i.number for i in call.batch}
        ended |= self._told
        behind = [n for n in delivered if n not in ended]
        self.demand(not behind, f"B1: {item} was delivered while {behind} are not done")
        delivered.append(item.number)

    def is_settled(self, item: Item) -> bool:
        number = item.number
        return (
            number in self.succeeded_items
            or number in self.errored
            or number in self.returned
        )

    def succeeded(self, call: Call) -> None:
        self._succeeded(call, {item.number for item in call.batch})

    def succeeded_but(self, call: Call, failed: Collection[int]) -> None:
        numbers = {item.number for item in call.batch}
        owed = {call.batch[place].number for place in failed}
        self._owed |= owed
        self._told |= numbers - owed
        self._succeeded(call, numbers - owed)

    def _succeeded(self, call: Call, numbers: set[int]) -> None:
        if call.was_cancelled:
            # After its time: handled, failed or returned, that depends.
            self._perhaps |= numbers
        else:
            self.succeeded_items |= numbers

    def left(self, call: Call) -> None:
        self.calls.remove(call)

    def on_error(self, batch: list[Item], _error: BaseException) -> None:
        for item in batch:
            self.demand(not self.is_settled(item), f"A1: {item} failed, and is settled")
        self.errored.update(item.number for item in batch)

    def was_returned(self, items: list[Item]) -> None:
        for item in items:
            assert item.number in self.place, f"A1: {item} is returned but never came"
            assert not self.is_settled(item), f"A1: {item} is returned, and is settled"
            self.returned.add(item.number)

    def check_ended(self, stats: Any) -> None:  # noqa: ANN401  # totals of the queue
        """Everything that was accepted has ended exactly once."""
        perhaps = self._perhaps - self.errored - self.returned
        seen = {
            "accepted": len(self.place),
            "handled": len(self.succeeded_items | perhaps),
            "failed": len(self.errored),
            "returned": len(self.returned),
            "waiting": 0,
            "in_flight": 0,
        }
        counted = {name: getattr(stats, name) for name in seen}
        assert counted == seen, f"A1: counted are {counted}, seen were {seen}"


def _check_sum(of: Accounts) -> None:
    """A1, at the speed that every single step asks for; `stats()` says the same."""
    ended = of.handled + of.failed + of.dropped + of.unhandled + of.returned
    assert of.taken_out == of.in_flight + ended, "A1: the accounts do not add up"
    assert of.in_flight >= 0, "A1: fewer than none are in flight"
