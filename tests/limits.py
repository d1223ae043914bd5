"""Checks the limits that CONTRIBUTING states: `python -m tests.limits`, in `make lint`.

A file of the library has 400 lines at most, a function about 30 lines of code (32): its
signature, docstring, comments and blank lines don't count. No file is called by a name
that fits whatever is in it.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("batchqueue_async", "pyspark_batchqueue")
FILE_LINES = 400
FUNCTION_LINES = 32
NO_NAMES = {"utils", "helpers", "base", "common", "types"}

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(source: str) -> set[int]:
    """The numbers of the lines that have code on them, or a text."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def beyond_limits(path: Path) -> Iterator[str]:
    """What of a file is longer than it may be; and its name, if that says nothing."""
    source = path.read_text("utf-8")
    name = path.relative_to(ROOT)
    if path.stem.strip("_") in NO_NAMES:
        yield f"{name}: a file is named for what is in it"
    count = len(source.splitlines())
    if count > FILE_LINES:
        yield f"{name}: {count} lines, at most {FILE_LINES}"
    code = lines_of_code(source)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if not body:
            continue
        last = node.end_lineno or 0
        count = len(code & set(range(body[0].lineno, last + 1)))
        if count > FUNCTION_LINES:
            where = f"{name}:{node.lineno}"
            yield f"{where}: {node.name} has {count} lines, at most {FUNCTION_LINES}"


def main() -> int:
    """Print what is beyond the limits; return 1 if anything is."""
    found = [
        each
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for each in beyond_limits(path)
    ]
    sys.stdout.writelines(f"{each}\n" for each in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
