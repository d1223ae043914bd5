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

    # In each of these one call, and nothing of its own is done before that.

    def take(self, count: int) -> int:
        first = super().take(count)
        home = self._home
        home.taken_out += count
        home.in_flight += count
        return first

    def settle(self, outcome: Outcome, count: int, first: int) -> None:
        super().settle(outcome, count, first)
        home = self._home
        home.in_flight -= count
        if outcome == "handled":
            home.handled += count
        elif outcome == "failed":
            home.failed += count
        elif outcome == "unhandled":
            home.unhandled += count
        else:
            home.returned += count

    def settle_some(self, handled: int, left: int, first: int, rest: int) -> None:
        super().settle_some(handled, left, first, rest)
        self._home.in_flight -= handled
        self._home.handled += handled

    def return_waiting(self, count: int) -> None:
        super().return_waiting(count)
        self._home.taken_out += count
        self._home.returned += count

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
        accounts, watcher = self._accounts, self._watcher
        if self.missing == 1 and accounts.is_watched_by(watcher):
            watcher.reached()
            # No call from here on: it is told once.
            watchers = accounts.watchers
            assert watchers is not None
            del watchers[watcher]
            accounts.watchers = watchers or None
        self.missing -= 1
