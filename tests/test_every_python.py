"""`make test-all` finds what it imports in environments without PySpark."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.every_python import OF_SPARK, ROOT

NEEDS_PYSPARK = ("pyspark", "batchqueue_async.spark", "tests.support.spark")


def imported_at_once(module: ast.Module) -> Iterator[str]:
    for each in module.body:
        if isinstance(each, ast.Import):
            yield from (name.name for name in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module:
            yield each.module
            yield from (f"{each.module}.{name.name}" for name in each.names)


def needs_pyspark(file: Path) -> bool:
    names = imported_at_once(ast.parse(file.read_text("utf-8")))
    return any(
        f"{name}.".startswith(f"{it}.") for name in names for it in NEEDS_PYSPARK
    )


def test_what_imports_pyspark_is_left_out() -> None:
    modules = [*(ROOT / "tests").rglob("test_*.py")]
    need = {str(each.relative_to(ROOT)) for each in modules if needs_pyspark(each)}
    left_out = {each for each in need for it in OF_SPARK if fnmatch(each, it)}

    assert len(need) > 10
    assert need - left_out == set()
