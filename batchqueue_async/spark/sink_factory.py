"""Finds a sink by the name of its factory, as the data source's option gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from importlib import import_module
from typing import Any, Final, TypeAlias

from batchqueue_async._validation import refuse
from batchqueue_async._wording import reason, shown
from batchqueue_async.sinks.staged import StagedSink

SinkFactory: TypeAlias = Callable[[Mapping[str, str]], StagedSink[Any]]
"""Gets the data source's options, keys in lower case, and returns a sink."""


_SINKS: Final = "batchqueue_async.sinks"
_BUILT_IN: Final = {
    "parquet": f"{_SINKS}.parquet_staged:ParquetStagedSink.from_options",
    "postgres": f"{_SINKS}.postgres_staged:PostgresStagedSink.from_options",
    "sqlite": f"{_SINKS}.sqlite_staged:SqliteStagedSink.from_options",
}


def find_factory(name: str | None) -> SinkFactory:
    """Return what `package.module:factory` names; dots may follow the colon.

    "parquet", "postgres" and "sqlite" are short for the library's own.
    """
    module, colon, path = _BUILT_IN.get(name or "", name or "").partition(":")
    if not (module and colon and path):
        short = ", ".join(f'"{each}"' for each in _BUILT_IN)
        refuse("sink", f'{short} or "package.module:factory"', name)
    try:
        factory: object = reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        msg = (
            f"sink must name a factory that the driver's and every executor's Python "
            f"can import, got {shown(name)}: {reason(error)}"
        )
        raise ValueError(msg) from error
    if not callable(factory):
        msg = f"sink must name something callable, got {shown(name)}: {shown(factory)}"
        raise TypeError(msg)
    return factory


def make_sink(name: str | None, options: Mapping[str, str]) -> StagedSink[Any]:
    """Call the factory."""
    sink: object = find_factory(name)(options)
    if not isinstance(sink, StagedSink):
        msg = f"sink {shown(name)} must return a StagedSink, got {shown(sink)}"
        raise TypeError(msg)
    return sink
