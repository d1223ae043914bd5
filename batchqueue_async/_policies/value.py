"""Frozen dataclasses whose methods are written once, not compiled for each of them.

`dataclass` writes methods as text for each class, and looks at each field in many ways,
at every start of a program: that was more than half of what the import took. So a
`Value` becomes a dataclass when somebody asks for its fields: `replace`, for instance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

if TYPE_CHECKING:
    from inspect import Signature

_set = object.__setattr__


class _FieldsWhenAsked:
    """Makes a class the dataclass that it is declared as."""

    def __init__(self, *, kw_only: bool) -> None:
        self._kw_only = kw_only

    def __get__(self, _: object, cls: type[Value]) -> dict[str, dataclasses.Field[Any]]:
        declared = next(each for each in cls.__mro__ if self in vars(each).values())
        # This changes the class in place, and replaces this descriptor.
        dataclasses.dataclass(
            frozen=True, init=False, repr=False, eq=False, kw_only=self._kw_only
        )(declared)
        return cls.__dataclass_fields__


class _SignatureOf:
    """What `inspect.signature` says of a class."""

    def __get__(self, value: Value | None, cls: type[Value]) -> Signature:
        if value is not None:
            # The signature of a value that can be called is that of its `__call__`.
            msg = "__signature__"
            raise AttributeError(msg)
        # Imported late: needed only if somebody asks, or an argument is wrong.
        from inspect import Parameter, Signature  # noqa: PLC0415

        by_position, by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
        # `help` asks each base, too: `Value` has no fields, and is no dataclass.
        fields = dataclasses.fields(cls) if cls._names else ()
        found = [
            Parameter(
                each.name,
                by_name if each.kw_only else by_position,
                default=cls._defaults.get(each.name, Parameter.empty),
                annotation=each.type,
            )
            for each in fields
        ]
        found.sort(key=lambda each: each.kind)
        return Signature(found, return_annotation=None)


@dataclass_transform(frozen_default=True)
class Value:
    """Equal to another of its class whose fields are equal; it can't be changed.

    A class that derives from it declares its fields as a dataclass does; with `kw_only`
    they are given by name. Defaults are shared by all, so they must be frozen, too.

    Raises:
        TypeError: A field has no value, or there is no field for one.
    """

    __signature__: ClassVar[_SignatureOf] = _SignatureOf()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    _names: ClassVar[tuple[str, ...]] = ()
    # Those of `_names` that may be given by position.
    _positional: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, object]] = {}
    # What others call these fields.
    _called_elsewhere: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        super().__init_subclass__()
        kinds = cls.__annotations__.items()
        own = [name for name, kind in kinds if "ClassVar" not in str(kind)]
        if not own:
            return
        given = vars(cls)
        defaults = {name: given[name] for name in own if name in given}
        cls._names = tuple(dict.fromkeys((*cls._names, *own)))
        cls._defaults = {**cls._defaults, **defaults}
        if not kw_only:
            cls._positional = tuple(dict.fromkeys((*cls._positional, *own)))
        fields: Any = _FieldsWhenAsked(kw_only=kw_only)
        cls.__dataclass_fields__ = fields
        setattr(cls, "__match_args__", cls._positional)  # noqa: B010 - mypy has its own

    def __init__(self, *values: object, **named: object) -> None:
        given = named
        if values:
            given = {**dict(zip(self._positional, values, strict=False)), **named}
        is_one_each = len(given) == len(values) + len(named)
        found = {**self._defaults, **given}
        if not is_one_each or found.keys() != {*self._names}:
            try:
                type(self).__signature__.bind(*values, **named)
            except TypeError as error:
                msg = f"{type(self).__qualname__}: {error}{self._meant(named)}"
                raise TypeError(msg) from None
        for name, value in found.items():
            _set(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the fields."""

    def _meant(self, named: Iterable[str]) -> str:
        """Return the field that the first unknown name is meant for, as a question."""
        from difflib import get_close_matches  # noqa: PLC0415 - hardly ever needed

        unknown = next((name for name in named if name not in self._names), "")
        elsewhere = self._called_elsewhere.get(unknown)
        near = [elsewhere] if elsewhere else get_close_matches(unknown, self._names)
        return f"; did you mean {near[0]}?" if near else ""

    @classmethod
    def unchecked(cls, fields: dict[str, Any]) -> Self:
        """Return one with all its fields, which are known to be right.

        It takes a third of the time: of statistics there may be tens of thousands.
        """
        made = cls.__new__(cls)
        vars(made).update(fields)
        return made

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

    def __replace__(self, **changes: object) -> Self:
        """Return another one, as `copy.replace` asks for it (Python 3.13)."""
        known = {name: getattr(self, name) for name in self._names}
        return type(self)(**known | changes)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self._names)
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_frozen(value: Value, name: str) -> bool:
    # Like a dataclass: a class that derives from one may add attributes of its own.
    cls = type(value)
    return "__dataclass_fields__" in vars(cls) or name in cls._names


def _values(value: Value) -> tuple[object, ...]:
    return tuple([getattr(value, name) for name in value._names])  # noqa: SLF001
