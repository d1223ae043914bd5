"""Troubleshooting goes by message: it quotes the source, and has all that is logged."""

import ast
import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

ROW = re.compile(r"^\| `(?P<message>[^`]+)` \|", re.MULTILINE)
LOGGED_AS = frozenset({"warning", "error", "exception", "critical", "log"})
HOLE = re.compile(r"%[-+.\d]*[sdrgf]|`[^`]*`")


def test_troubleshooting_has_a_row_for_each_line_that_is_logged() -> None:
    rows = set(rows_of_troubleshooting())

    assert logged_messages()
    assert sorted(logged_messages() - rows) == []


def test_troubleshooting_has_a_row_for_each_error_of_the_package() -> None:
    raised = raised_messages()

    assert len(raised) > 70
    # One row stands for all that are of this form.
    plain = {each for each in raised if not (" must " in each and ", got " in each)}
    assert sorted(plain - set(rows_of_troubleshooting())) == []


def test_what_troubleshooting_quotes_stands_in_the_source() -> None:
    rows = rows_of_troubleshooting()

    assert sorted(set(rows) - all_messages() - MADE_OF_PARTS) == []
    assert sorted({each for each in rows if rows.count(each) > 1}) == []


# These do not stand in the source in one piece.
MADE_OF_PARTS = {
    "... must be ..., got ...",
    "... failures in queue ...; first: ...",
    "queue ... exists and dispatches to ...",
    "a handler of ... would wait for itself: ... before it returns",
}


def rows_of_troubleshooting() -> list[str]:
    return ROW.findall((ROOT / "docs" / "troubleshooting.md").read_text("utf-8"))


def logged_messages() -> set[str]:
    """What is logged at WARNING or above, as it stands in the code."""
    texts = set()
    for node in calls():
        # Whatever it is a method of: a logger, or what counts repeated failures.
        if isinstance(node.func, ast.Attribute) and node.func.attr in LOGGED_AS:
            texts |= {text for each in node.args[:2] if (text := shown_of(each))}
    # One line has no words of its own, and one is not logged by a logger's method.
    dropped = "... log record... dropped (... in all): the target is slow or down"
    return texts - {"..."} | {f"{dropped}, or the program ends"}


ERROR = re.compile(r"\b(BatchQueue|Ring)Error|RingHalted|InvalidArgument|ImportError")


def raised_messages() -> set[str]:
    """What errors say whose class is the package's, or that concern an installation."""
    texts = set()
    for tree in trees():
        for body in bodies(tree):
            for before, node in itertools.pairwise(body):
                if not (isinstance(node, ast.Raise) and node.exc):
                    continue
                if isinstance(before, ast.Assign) and ERROR.match(
                    ast.unparse(node.exc)
                ):
                    texts.add(shown_of(before.value))
    # What consists of names alone, another error says.
    return texts - {"", "...: ..."}


def bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, name, None), list):
                yield body


def all_messages() -> set[str]:
    """Every text of the package, as a message of it would be quoted."""
    return {
        text for tree in trees() for each in ast.walk(tree) if (text := shown_of(each))
    }


def shown_of(node: ast.AST) -> str:
    """Return a text with `...` for what varies; "" for what is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return with_holes(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (
            str(each.value) if isinstance(each, ast.Constant) else "..."
            for each in node.values
        )
        return with_holes("".join(parts))
    return ""


def with_holes(text: str) -> str:
    # Of two that touch each other, or stand around a dot, only one is seen.
    return re.sub(r"\.{4,}", "...", HOLE.sub("...", text))


def calls() -> Iterator[ast.Call]:
    for tree in trees():
        yield from (each for each in ast.walk(tree) if isinstance(each, ast.Call))


@functools.cache
def trees() -> list[ast.Module]:
    sources = sorted((ROOT / "batchqueue_async").rglob("*.py"))
    return [ast.parse(each.read_text("utf-8")) for each in sources]
