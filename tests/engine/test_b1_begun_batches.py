"""B1 and D2: a chunk's run may begin a batch only where nothing stands before it."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from batchqueue_async._engine.partition import Partition
from batchqueue_async._threads.guard import Guard


class Watching:
    def reached(self) -> None:
        """Nobody asks."""


class Asleep:
    """A producer that holds slots, and has not filled them yet."""

    def __init__(self) -> None:
        self.wants = 1
        self.granted = 0
        self.drain_task: int | None = None

    def wake(self) -> None:
        """Its step comes later."""

    def surrender(self) -> Sequence[int]:
        return ()


def wait_in_line(partition: Partition[int]) -> None:
    partition.offer(range(4))
    partition.wait_in_line(Asleep())
    partition.take(None)


def watch(partition: Partition[int]) -> None:
    partition.offer([1])
    partition.watch(Watching())
    partition.take(None)


def linger(partition: Partition[int]) -> None:
    partition.ages.clock = lambda: 0.0
    partition.open()


def be_changing(partition: Partition[int]) -> None:
    partition.is_changing = True


def nothing(_: Partition[int]) -> None:
    """Only the chunk is in the way."""


REASONS: dict[str, tuple[Callable[[Partition[int]], object], int]] = {
    "it is closed": (Partition.close, 1),
    "a change is under way": (be_changing, 1),
    "a producer waits": (wait_in_line, 1),
    "a flush waits": (watch, 1),
    "the oldest item's age counts": (linger, 1),
    "threads put, too": (lambda partition: partition.share(Guard()), 1),
    "items wait": (lambda partition: partition.offer([1]), 1),
    "it would be due": (nothing, 3),
    "there is no room": (nothing, 5),
}


@pytest.mark.parametrize("reason", REASONS)
def test_it_does_not_begin_when(reason: str) -> None:
    get_in_the_way, count = REASONS[reason]
    partition = Partition[int](0, buffer_size=4, due_size=3)
    partition.open()
    get_in_the_way(partition)
    before = list(partition.items), partition.limit
    assert not partition.begin([0] * count)
    assert (list(partition.items), partition.limit) == before


class Chunk(list[int]):
    """Runs code where a signal handler may run, when it is measured or gone through."""

    def __init__(
        self,
        items: Sequence[int],
        measured: Callable[[], object] = int,
        gone_through: Callable[[], object] = int,
    ) -> None:
        super().__init__(items)
        self.measured = measured
        self.gone_through = gone_through

    def __len__(self) -> int:
        self.measured()
        return super().__len__()

    def __iter__(self) -> Iterator[int]:
        yield from super().__iter__()
        self.gone_through()


def test_what_a_signal_handler_puts_in_meanwhile_counts() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=4)
    partition.open()
    chunk = Chunk([2] * 3, measured=lambda: partition.offer([1]))
    assert not partition.begin(chunk)
    assert partition.items == [1]


def test_a_close_by_a_signal_handler_meanwhile_stays() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=4)
    partition.open()
    assert partition.begin(Chunk([2] * 2, gone_through=partition.close))
    assert partition.items == [2] * 2
    assert partition.limit == partition.guarded_limit == 0


def test_once_nobody_waits_in_line_a_batch_begins_again() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=4)
    partition.open()
    waiter = Asleep()
    partition.wait_in_line(waiter)
    assert not partition.begin([1])
    partition.leave_line(waiter)
    assert partition.begin([1])


def test_once_nobody_watches_the_next_take_lets_a_batch_begin_again() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=4)
    partition.open()
    watch(partition)
    partition.accounts.open(0)
    partition.accounts.settle("handled", 1, 0)
    assert partition.offer([2]) == 1
    assert partition.take(None) == [2]
    assert partition.begin([3])


def test_else_it_does_and_the_next_meet_no_edge_until_it_is_due() -> None:
    partition = Partition[int](0, buffer_size=4, due_size=3)
    partition.open()
    assert partition.begin([1])
    assert partition.items == [1]
    by_offer = Partition[int](0, buffer_size=4, due_size=3)
    by_offer.open()
    by_offer.offer([1])
    assert partition.limit == by_offer.limit
    assert partition.guarded_limit == by_offer.guarded_limit


def test_a_partition_can_be_shown() -> None:
    partition = Partition[int](3, buffer_size=4, due_size=3)
    partition.offer([1, 2])
    assert str(partition) == "<Partition 3 open waiting=2>"
    partition.close()
    assert repr(partition).endswith(" 3 closed waiting=2>")
    assert repr(partition).startswith("<Partition at 0x")
