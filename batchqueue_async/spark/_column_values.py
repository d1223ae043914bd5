"""Turns Spark's columns into Python values, also those that a class's annotations want.

First come the plain values of a column, then the parameters of a class or function,
then conversions to what an annotation says, or a refusal that names the column.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import pyarrow as pa

Convert: TypeAlias = Callable[[Any], Any]
"""Converts one value, which is never None."""
Read: TypeAlias = Callable[[pa.Field, pa.Array], list[Any]]
"""Returns a column's values as Python objects."""

# Types that a column's values may have. Other annotations, such as a class of one's
# own, a TypeVar or a Protocol, say nothing about values.
_KNOWN: Final = frozenset(
    (bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta)
)
_OF_LIST: Final[Mapping[Any, Convert | None]] = {
    list: None,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}
_KINDS: Final[Sequence[tuple[Callable[[pa.DataType], bool], type]]] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_large_binary, bytes),
    (pa.types.is_date, date),
    (pa.types.is_timestamp, datetime),
    (pa.types.is_time, time),
    (pa.types.is_duration, timedelta),
    (pa.types.is_map, dict),
    (pa.types.is_struct, dict),
    (pa.types.is_list, list),
    (pa.types.is_large_list, list),
)
_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def values_of(field: pa.Field, column: pa.Array) -> list[Any]:
    """Return the values: timestamps as whole microseconds since 1970, maps as dicts."""
    if pa.types.is_timestamp(column.type):
        microseconds = pa.timestamp("us", column.type.tz)
        column = column.cast(microseconds).cast(pa.int64())
    values = _python_values(field, column)
    try:
        return _converted(values, _with_dicts(column.type))
    except TypeError:
        msg = (
            f"column {field.name!r} has a map of type {field.type}, whose keys are none"
            " of a dict in Python: map_entries in Spark, or to_batches"
        )
        raise TypeError(msg) from None


def _python_values(field: pa.Field, column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (LookupError, OverflowError, ValueError) as error:
        # A LookupError is a time zone that only Java knows, such as "PST" or "Z".
        msg = (
            f"column {field.name!r} has a value of type {field.type} that Python"
            f" doesn't have ({error}): cast it in Spark, or use to_batches"
        )
        raise ValueError(msg) from None
    return values


def _converted(values: list[Any], convert: Convert | None) -> list[Any]:
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]


def _with_dicts(kind: pa.DataType) -> Convert | None:
    """Return a function that makes dicts of maps, which pyarrow gives as pairs.

    None if there are no maps in values of this type, however deep.
    """
    if pa.types.is_map(kind):
        inner = _with_dicts(kind.item_type)
        if inner is None:
            return dict
        return lambda pairs: {k: it if it is None else inner(it) for k, it in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each = _with_dicts(kind.value_type)
        return None if each is None else lambda values: _converted(values, each)
    if pa.types.is_struct(kind):
        inners = {field.name: _with_dicts(field.type) for field in kind}
        known = {name: inner for name, inner in inners.items() if inner is not None}
        return _struct_of(known) if known else None
    return None


def _struct_of(inners: dict[str, Convert]) -> Convert:
    def convert(struct: dict[str, Any]) -> dict[str, Any]:
        for name, inner in inners.items():
            if struct[name] is not None:
                struct[name] = inner(struct[name])
        return struct

    return convert


class Parameter(NamedTuple):
    name: str
    annotation: Any


class Parameters(NamedTuple):
    """Parameters for values by position; `rest` is a `*values` after the `first`."""

    first: tuple[Parameter, ...]
    required: int
    rest: Parameter | None

    def __str__(self) -> str:
        names = [each.name for each in self.first]
        rest = [] if self.rest is None else [f"*{self.rest.name}"]
        return f"({', '.join([*names, *rest])})"

    def for_values(self, count: int) -> list[Parameter] | None:
        """Return the parameters for `count` values; None if so many aren't taken."""
        more = count - len(self.first)
        if count < self.required or (more > 0 and self.rest is None):
            return None
        rest = [] if self.rest is None else [self.rest] * more
        return [*self.first[:count], *rest]


def parameters_of(make: Callable[..., object]) -> Parameters | None:
    """Return what `make` takes; None if unknown, as for much that is written in C."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return None
    hints = _hints_of(make)
    first: list[Parameter] = []
    required, rest = 0, None
    for each in signature.parameters.values():
        annotation = hints.get(each.name, each.annotation)
        # No annotation, or a text that could not be evaluated.
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
    """Return the annotations; those that are texts are evaluated, if possible."""
    where: list[Any] = [make]
    if isinstance(make, type):
        # A NamedTuple's annotations are its class's, others' their constructor's.
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


class _Unfit(Exception):
    """Values of a column's type don't fit an annotation."""


def reader_for(column: pa.Field, parameter: Parameter, whose: str) -> Read:
    choices = [*_choices(parameter.annotation)]
    if pa.types.is_timestamp(column.type):
        if datetime in choices and int not in choices:
            moments = pa.timestamp("us", column.type.tz and "UTC")
            return lambda field, array: _python_values(field, array.cast(moments))
        kind = pa.int64()  # as `values_of` has it
    else:
        kind = column.type
    try:
        convert = _converter(kind, parameter.annotation)
    except _Unfit:
        made = getattr(_made_of(kind), "__name__", "None")
        wanted = getattr(parameter.annotation, "__name__", str(parameter.annotation))
        msg = (
            f"column {column.name!r} of type {column.type} has values of type"
            f" {made}, but {parameter.name!r} of {whose} is annotated"
            f" {wanted}: cast the column in Spark, or annotate what it has"
        )
        raise TypeError(msg) from None
    if convert is None:
        return values_of
    return lambda field, array: _converted(values_of(field, array), convert)


def _choices(annotation: Any) -> Iterator[Any]:  # noqa: ANN401 - whatever was written
    """Yield the types that an annotation allows, inside unions and aliases, too."""
    if (alias := getattr(annotation, "__supertype__", None)) is not None:
        yield from _choices(alias)  # a NewType
    elif get_origin(annotation) is Annotated:
        yield from _choices(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from _choices(each)
    elif annotation is not type(None):
        yield annotation


def _converter(kind: pa.DataType, annotation: object) -> Convert | None:
    """Return what converts a value to the annotation; None if it fits already."""
    found: list[Convert] = []
    choices = [*_choices(annotation)]
    for choice in choices:
        try:
            convert = _conversion(kind, choice)
        except _Unfit:
            continue
        if convert is None:
            return None
        found.append(convert)
    if choices and not found:
        raise _Unfit
    return found[0] if found else None


def _conversion(kind: pa.DataType, choice: Any) -> Convert | None:  # noqa: ANN401
    made, wanted = _made_of(kind), get_origin(choice) or choice
    is_told = wanted in _KNOWN or wanted in _OF_LIST or wanted is dict
    if made is list and (wanted in _OF_LIST or not is_told):
        return _list_conversion(kind, choice)
    if made is dict and (wanted is dict or not is_told):
        return _dict_conversion(kind, choice)
    is_same = made is wanted or (made is bool and wanted is int)
    if made is None or is_same or not is_told:
        return None
    if wanted is float and made in (int, Decimal):
        return float
    if wanted is Decimal and made is int:
        return Decimal
    if wanted is int and made is Decimal and kind.scale <= 0:
        return int
    raise _Unfit


def _list_conversion(kind: pa.DataType, choice: Any) -> Convert | None:  # noqa: ANN401
    inner, wanted, arguments = None, get_origin(choice) or choice, get_args(choice)
    if len(arguments) == 1 or (wanted is tuple and arguments[1:] == (...,)):
        inner = _converter(kind.value_type, arguments[0])
    outer = _OF_LIST.get(wanted)
    if inner is None:
        return outer
    collect = outer or list
    return lambda values: collect(_converted(values, inner))


def _dict_conversion(kind: pa.DataType, choice: Any) -> Convert | None:  # noqa: ANN401
    wanted, arguments = get_origin(choice) or choice, get_args(choice)
    if pa.types.is_map(kind) and len(arguments) == 2:  # noqa: PLR2004 - keys, values
        key = _converter(kind.key_type, arguments[0])
        value = _converter(kind.item_type, arguments[1])
        if key is None and value is None:
            return None
        return lambda pairs: dict(
            zip(
                _converted([*pairs], key),
                _converted([*pairs.values()], value),
                strict=True,
            )
        )
    if isinstance(wanted, type) and (is_dataclass(wanted) or hasattr(wanted, "_make")):
        if not pa.types.is_struct(kind):
            raise _Unfit
        return _object_conversion(kind, wanted)
    return None


def _object_conversion(kind: pa.DataType, wanted: type) -> Convert:
    """Return a function that makes an object of a struct whose fields it takes."""
    parameters = parameters_of(wanted)
    names = [each.name for each in kind]
    if parameters is None or names != [each.name for each in parameters.first]:
        raise _Unfit
    fields = [
        (each.name, _converter(each.type, parameter.annotation))
        for each, parameter in zip(kind, parameters.first, strict=True)
    ]

    def convert(struct: Mapping[str, Any]) -> object:
        return wanted(*(_converted([struct[name]], it)[0] for name, it in fields))

    return convert


def _made_of(kind: pa.DataType) -> type | None:
    return next((made for is_it, made in _KINDS if is_it(kind)), None)
