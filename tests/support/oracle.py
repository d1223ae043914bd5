"""Checks promise A1: every accepted item is in exactly one class."""

from collections.abc import Sequence
from typing import Protocol


class Accounts(Protocol):
    """The counts that a queue and each of its partitions report."""

    @property
    def accepted(self) -> int: ...
    @property
    def rejected(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def handled(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def unhandled(self) -> int: ...
    @property
    def returned(self) -> int: ...


class QueueAccounts(Accounts, Protocol):
    """The same for the queue, with its partitions."""

    @property
    def partitions(self) -> Sequence[Accounts]: ...


class HasStats(Protocol):
    """A queue, or the bridge's view of one."""

    def stats(self) -> QueueAccounts: ...


CLASSES = (
    "handled",
    "failed",
    "dropped",
    "unhandled",
    "returned",
    "waiting",
    "in_flight",
)


def check_accounts(source: HasStats | QueueAccounts) -> QueueAccounts:
    """Assert A1 for the queue and each partition; returns the snapshot checked."""
    snapshot: QueueAccounts = source.stats() if hasattr(source, "stats") else source
    _check_identity("queue", snapshot)
    for index, partition in enumerate(snapshot.partitions):
        _check_identity(f"partition {index}", partition)
    for name in ("accepted", *CLASSES):
        total = sum(getattr(partition, name) for partition in snapshot.partitions)
        assert getattr(snapshot, name) == total, (
            f"{name}: the queue says {getattr(snapshot, name)}, its partitions {total}"
        )
    return snapshot


def check_settled(source: HasStats | QueueAccounts) -> QueueAccounts:
    """Assert A1, and that no item waits or is in flight any more."""
    snapshot = check_accounts(source)
    assert snapshot.waiting == 0
    assert snapshot.in_flight == 0
    return snapshot


def _check_identity(where: str, accounts: Accounts) -> None:
    counts = {name: getattr(accounts, name) for name in CLASSES}
    negative = {name: count for name, count in counts.items() if count < 0}
    assert not negative, f"{where}: negative {negative}"
    assert accounts.rejected >= 0, f"{where}: rejected {accounts.rejected}"
    assert accounts.accepted == sum(counts.values()), (
        f"{where}: accepted {accounts.accepted}, accounted for"
        f" {sum(counts.values())}: {counts}"
    )
