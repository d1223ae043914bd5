"""What a class or a function takes, and how it is annotated."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class Parameter(NamedTuple):
    """One value that it takes."""

    name: str
    annotation: Any


class Parameters(NamedTuple):
    """What may be given by position.

    Attributes:
        first: Each one, in their order.
        required: How many of them there must be.
        rest: All that may come after them, as with `*values`; None if nothing may.
    """

    first: tuple[Parameter, ...]
    required: int
    rest: Parameter | None

    def __str__(self) -> str:
        names = [each.name for each in self.first]
        rest = [] if self.rest is None else [f"*{self.rest.name}"]
        return f"({', '.join([*names, *rest])})"

    def for_values(self, count: int) -> list[Parameter] | None:
        """Return those for so many values; None if it doesn't take as many."""
        more = count - len(self.first)
        if count < self.required or (more > 0 and self.rest is None):
            return None
        rest = [] if self.rest is None else [self.rest] * more
        return [*self.first[:count], *rest]


def parameters_of(make: Callable[..., object]) -> Parameters | None:
    """Return what it takes; None if it doesn't say, as much that is written in C."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return None
    hints = _hints_of(make)
    first: list[Parameter] = []
    required, rest = 0, None
    for each in signature.parameters.values():
        annotation = hints.get(each.name, each.annotation)
        # Not there, or a text that could not be evaluated.
        if annotation is each.empty or isinstance(annotation, str):
            annotation = object
        known = Parameter(each.name, annotation)
        if each.kind in _POSITIONAL:
            first.append(known)
            required += each.default is each.empty
        elif each.kind is each.VAR_POSITIONAL:
            rest = known
    return Parameters(tuple(first), required, rest)


def _hints_of(make: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations, texts evaluated where that is possible."""
    where: list[Any] = [make]
    if isinstance(make, type):
        # Of a NamedTuple they are the class's, of others those of its constructor.
        where.append(make.__init__)  # type: ignore[misc]
    elif not inspect.isroutine(make):
        where = [type(make).__call__]
    hints: dict[str, Any] = {}
    for each in where:
        try:
            hints |= get_type_hints(each)
        except Exception:  # noqa: BLE001 - a name that is only there for checkers
            continue
    return hints
