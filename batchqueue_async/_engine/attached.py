"""Handlers that keep something ready for as long as queues may call them."""

from __future__ import annotations


class Attached:
    """A handler that is told which queues may call it: since when, and until when.

    A queue whose loop ends first doesn't tell it: what it keeps, it must let go of by
    itself when it is collected.
    """

    def attach(self, queue: object) -> None:
        """Get ready: this queue may call from now on. Must not raise."""

    def detach(self, queue: object) -> None:
        """This queue calls no more."""
