"""What became of a fair partition's items: for each key, and for all together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.partitions.accounts import Accounts, Outcome, Watcher

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.key_buffer import KeyBuffer


class KeyAccounts(Accounts):
    """Knows the positions of one key's items; what became of them is also the home's.

    That is what counts, since the key's own numbers are gone with its last item.
    """

    __slots__ = ("_home",)

    def __init__(self, home: Accounts) -> None:
        super().__init__()
        self._home = home

    def take(self, count: int) -> None:
        super().take(count)
        self._home.take(count)

    def settle(self, outcome: Outcome, count: int, first: int) -> None:
        home = self._home
        home.in_flight -= count
        setattr(home, outcome, getattr(home, outcome) + count)
        super().settle(outcome, count, first)

    def settle_some(self, handled: int, first: int, rest: int) -> None:
        self._home.in_flight -= handled
        self._home.handled += handled
        super().settle_some(handled, first, rest)

    def return_waiting(self, count: int) -> None:
        super().return_waiting(count)
        self._home.return_waiting(count)

    def charge(self, seconds: float) -> None:
        self._home.charge(seconds)


class SharedAccounts(Accounts):
    """The account of all keys; positions are each key's own, and watched there."""

    __slots__ = ()

    def watch_all(self, watcher: Watcher, buffers: Iterable[KeyBuffer[Any]]) -> bool:
        """Tell `watcher` once, when all is settled that is in now, of every key."""
        all_reached = AllReached(watcher, self)
        for each in buffers:
            all_reached.missing += each.watch(all_reached)
        if not all_reached.missing:
            return False
        if self.watchers is None:
            self.watchers = OrderedDict()
        self.watchers[watcher] = self.taken_out
        return True

    def tell_watchers(self) -> None:
        """Nothing: the keys' own accounts tell."""


class AllReached:
    """Waits until the last of several positions is reached."""

    __slots__ = ("_accounts", "_watcher", "missing")

    def __init__(self, watcher: Watcher, accounts: Accounts) -> None:
        self._watcher = watcher
        self._accounts = accounts
        self.missing = 0

    def reached(self) -> None:
        self.missing -= 1
        if not self.missing and self._accounts.is_watched_by(self._watcher):
            self._accounts.unwatch(self._watcher)
            self._watcher.reached()
