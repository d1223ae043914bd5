"""`help()`, and whatever else looks into classes, works on every public name."""

import copy
import dataclasses
import importlib
import importlib.util
import inspect
import pickle
import pydoc
import typing

import pytest

import batchqueue_async
from batchqueue_async._policies.value import Value

MODULES = [
    "batchqueue_async",
    *(
        f"batchqueue_async.{name}"
        for name in (
            "logging",
            "ring",
            "simulation",
            "sinks",
            "sinks.parquet",
            "sinks.postgres",
            "sinks.sqlite",
            *(("spark",) if importlib.util.find_spec("pyspark") else ()),
            "telemetry",
            "testing",
            "testing.pytest_plugin",
        )
    ),
]
NAMES = [
    (module, name)
    for module in MODULES
    for name in getattr(importlib.import_module(module), "__all__", ())
]
VALUES = [
    value
    for name in batchqueue_async.__all__
    if isinstance(value := getattr(batchqueue_async, name), type)
    and issubclass(value, Value)
]


@pytest.mark.parametrize("module", MODULES)
def test_help_of_a_module(module: str) -> None:
    assert module in pydoc.plain(pydoc.render_doc(importlib.import_module(module)))


@pytest.mark.parametrize(
    "module, name", NAMES, ids=lambda each: each.removeprefix("batchqueue_async.")
)
def test_help_of_a_name(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)

    assert pydoc.render_doc(value)
    assert inspect.getmembers(value)
    if isinstance(value, type):
        assert inspect.classify_class_attrs(value)


@pytest.mark.parametrize("value", VALUES, ids=lambda each: each.__name__)
def test_a_value_is_looked_into_as_a_dataclass_is(value: type[Value]) -> None:
    names = [each.name for each in dataclasses.fields(value)]

    assert dataclasses.is_dataclass(value)
    assert names == list(inspect.signature(value).parameters)
    assert set(names) <= set(typing.get_type_hints(value))
    assert copy.deepcopy(value) is pickle.loads(pickle.dumps(value)) is value


def test_what_has_no_fields_takes_none() -> None:
    assert str(inspect.signature(Value)) == "() -> None"


@pytest.mark.parametrize(
    "function", [batchqueue_async.by_key, batchqueue_async.fair_by]
)
def test_what_a_function_is_annotated_with_can_be_looked_up(function: object) -> None:
    assert typing.get_type_hints(function)
