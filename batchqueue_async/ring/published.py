"""How far everything is published."""

from __future__ import annotations

from .sequence import INITIAL
from .watching import Watched


class Published(Watched):
    """What barriers know of a sequencer.

    `published` is the highest sequence up to which all are published: consumers go no
    further, whatever was published beyond. A plain number, because producers touch it
    for every event.
    """

    __slots__ = ("published",)

    def __init__(self) -> None:
        super().__init__()
        self.published = INITIAL
