"""How a value that grows tells those who wait for it."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Something that waits until a value has grown."""

    def look(self) -> None:
        """The value has grown; whoever still has to wait watches again."""


class Watched:
    """Keeps watchers and tells each once; free while there are none."""

    __slots__ = ("_watchers",)

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []

    def watch(self, watcher: Watcher) -> None:
        """Tell the watcher, once, when the value has grown."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Forget the watcher, if it is one."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def _tell(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher.look()
