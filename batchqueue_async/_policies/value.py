"""Frozen dataclasses whose methods are written once, not compiled for each of them.

`dataclass` writes `__init__`, `__setattr__` and so on as text for each class, and
compiles them at every start of a program: nearly half of what the import took.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from inspect import Signature

V = TypeVar("V", bound="Value")

_set = object.__setattr__


class _Arguments:
    """What `__init__` of one class takes."""

    __slots__ = ("_defaults", "_label", "_names", "_positional", "fields")

    def __init__(self, label: str, fields: tuple[dataclasses.Field[Any], ...]) -> None:
        self.fields = fields
        self._label = label
        self._names = {each.name for each in fields}
        self._positional = tuple(each.name for each in fields if not each.kw_only)
        self._defaults = {
            each.name: each.default for each in fields if each.default is not MISSING
        }

    def bound(
        self, values: tuple[object, ...], named: dict[str, object]
    ) -> dict[str, object]:
        """Return a value for each field, by its name."""
        given = named
        if values:
            given = {**dict(zip(self._positional, values, strict=False)), **named}
        is_one_each = len(given) == len(values) + len(named)
        found = {**self._defaults, **given}
        if is_one_each and found.keys() == self._names:
            return found
        try:
            self.signature().bind(*values, **named)
        except TypeError as error:
            msg = f"{self._label}: {error}"
            raise TypeError(msg) from None
        return found

    def signature(self) -> Signature:
        # Only where somebody asks, or where something is wrong.
        from inspect import Parameter, Signature  # noqa: PLC0415

        by_position, by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
        found = [
            Parameter(
                each.name,
                by_name if each.kw_only else by_position,
                default=self._defaults.get(each.name, Parameter.empty),
                annotation=each.type,
            )
            for each in self.fields
        ]
        found.sort(key=lambda each: each.kind)
        return Signature(found, return_annotation=None)


class _SignatureOf:
    """What `inspect.signature` says of a class."""

    def __get__(self, value: Value | None, cls: type[Value]) -> Signature:
        if value is not None:
            # What a value that can be called takes is in its `__call__`.
            msg = "__signature__"
            raise AttributeError(msg)
        return cls._arguments.signature()


class Value:
    """Equal to another of its class whose fields are equal; it can't be changed.

    Raises:
        TypeError: A field has no value, or there is no field for one.
    """

    __slots__ = ()

    __signature__: ClassVar[_SignatureOf] = _SignatureOf()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    _arguments: ClassVar[_Arguments]

    def __init__(self, *values: object, **named: object) -> None:
        for name, value in self._arguments.bound(values, named).items():
            _set(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the fields."""

    # To a type checker these would say that any attribute may be set.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            if _is_frozen(self, name):
                msg = f"cannot assign to field {name!r}"
                raise FrozenInstanceError(msg)
            super().__setattr__(name, value)

        def __delattr__(self, name: str) -> None:
            if _is_frozen(self, name):
                msg = f"cannot delete field {name!r}"
                raise FrozenInstanceError(msg)
            super().__delattr__(name)

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - whatever was pickled
        # As `object.__getstate__` returns it: with slots, a second dict is theirs.
        for each in state if isinstance(state, tuple) else (state,):
            for name, value in (each or {}).items():
                _set(self, name, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        names = [each.name for each in dataclasses.fields(self)]
        shown = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({', '.join(shown)})"


@overload
def frozen(cls: type[V], /) -> type[V]: ...


@overload
def frozen(*, kw_only: bool, slots: bool = True) -> Callable[[type[V]], type[V]]: ...


@dataclass_transform(frozen_default=True)
def frozen(
    cls: type[V] | None = None, /, *, kw_only: bool = False, slots: bool = True
) -> type[V] | Callable[[type[V]], type[V]]:
    """Make a dataclass of a `Value`, as `dataclass(frozen=True, slots=True)` would.

    Defaults are shared by all, so they must be frozen, too; there are no factories.
    """

    def declared(cls: type[V]) -> type[V]:
        # What is frozen could be derived from by what `dataclass` itself freezes only.
        _say_frozen(cls, is_frozen=False)
        made: type[V] = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
        )(cls)
        _say_frozen(made, is_frozen=True)
        arguments = _Arguments(made.__qualname__, dataclasses.fields(made))
        made._arguments = arguments  # noqa: SLF001 - its own class's
        return made

    return declared if cls is None else declared(cls)


def _say_frozen(cls: type[Value], *, is_frozen: bool) -> None:
    for each in cls.__mro__:
        if "__dataclass_params__" in vars(each):
            vars(each)["__dataclass_params__"].frozen = is_frozen


def _is_frozen(value: Value, name: str) -> bool:
    # Like a dataclass: a class that derives from one may add attributes of its own.
    cls = type(value)
    return "__dataclass_fields__" in vars(cls) or name in cls.__dataclass_fields__


def _values(value: Value) -> tuple[object, ...]:
    return tuple([getattr(value, each.name) for each in dataclasses.fields(value)])
