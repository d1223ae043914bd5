"""The documentation says what is so: its code runs, its links and tests exist."""

import ast
import asyncio
import re
import runpy
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from batchqueue_async import DrainTaskPolicy
from batchqueue_async._policies import drain_tasks

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorial.md"
GUIDES = [
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    ROOT / "docs" / "migrating.md",
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A file of the tutorial, and what it prints if it is a program.
TUTORIAL_FILE = re.compile(
    r"^```python\n(?P<code># (?P<name>\w+)\.py\n.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST_FILE = re.compile(r"\btests/[\w/]+\.py\b")
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CODE_FILE = re.compile(
    r"`((?:_policies|_engine|_bridge|_threads|ring|sinks|spark)/[\w/]+\.py)`"
)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text("utf-8"))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_code_of_a_guide_runs(
    guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(run_in_order(compiled_blocks(guide)))


def compiled_blocks(page: Path) -> list[CodeType]:
    """Compile a page's blocks, which may await at their top level."""
    text = page.read_text("utf-8")
    top_level_await = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    codes = []
    for match in BLOCK.finditer(text):
        # Blank lines in front: an error shows the page's line.
        source = "\n" * text[: match.start(1)].count("\n") + match[1]
        codes.append(compile(source, str(page), "exec", flags=top_level_await))
    return codes


async def run_in_order(codes: list[CodeType]) -> None:
    """Run blocks as one program."""
    namespace: dict[str, Any] = {"__name__": "guide"}
    for code in codes:
        result = eval(code, namespace)
        if result is not None:
            await result


FILES = {
    each["name"]: each for each in TUTORIAL_FILE.finditer(TUTORIAL.read_text("utf-8"))
}
PROGRAMS = [name for name, each in FILES.items() if each["output"] is not None]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_tutorial_prints_what_it_shows(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for each in FILES.values():
        Path(tmp_path, f"{each['name']}.py").write_text(each["code"], "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    try:
        runpy.run_path(str(tmp_path / f"{name}.py"), run_name="__main__")
    finally:
        for imported in FILES:
            sys.modules.pop(imported, None)

    assert capsys.readouterr().out == FILES[name]["output"]


def test_every_block_of_the_tutorial_is_a_file() -> None:
    assert len(FILES) == len(blocks(TUTORIAL))
    assert len(PROGRAMS) == len([name for name in FILES if name.startswith("step")])


def test_the_readme_shows_the_quickstart() -> None:
    program = (ROOT / "examples" / "quickstart.py").read_text("utf-8")

    assert program in blocks(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_the_index_lists_every_guide() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {index.parent / link for link in LINK.findall(prose(index))}

    assert set((ROOT / "docs" / "guides").glob("*.md")) <= linked


def anchors(page: Path) -> set[str]:
    """The headings of a page as they are linked to."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


def prose(page: Path) -> str:
    """A page without its code."""
    return FENCED.sub("", page.read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_and_tests_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text("utf-8")

    for path in set(TEST_FILE.findall(text)):
        assert (ROOT / path).exists(), f"{page.name}: {path}"
    for path in set(CODE_FILE.findall(text)):
        assert (ROOT / "batchqueue_async" / path).exists(), f"{page.name}: {path}"
    for path, name in TEST_NAME.findall(text):
        assert name in names_of_tests(ROOT / path), f"{page.name}: {path}::{name}"


def test_the_design_says_where_things_are() -> None:
    """The check above must not find nothing to check, after files have moved."""
    text = (ROOT / "docs" / "design.md").read_text("utf-8")
    rooms = {Path(path).parent.name for path in CODE_FILE.findall(text)}

    assert rooms >= {
        each.parent.name
        for each in (ROOT / "batchqueue_async" / "_engine").glob("*/__init__.py")
    }


def names_of_tests(file: Path) -> set[str]:
    """The names of a file's tests, those in classes and state machines included."""
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test")
    }


def test_each_of_the_originals_tests_has_one_row() -> None:
    page = (ROOT / "docs" / "from_skywalking.md").read_text("utf-8")
    rows = re.findall(r"^\| `(test\w+)` \|", page, re.MULTILINE)

    assert len(rows) == 80


THREADS = re.compile(
    r"^\| (\d+) \| (\d+) \| (\d+) \| 1 \| 4 \| (\d+) \| 1 \|$", re.MULTILINE
)


def test_drain_tasks_per_machine_are_what_the_policies_make_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (ROOT / "docs" / "from_skywalking.md").read_text("utf-8")
    rows = [tuple(map(int, row)) for row in THREADS.findall(page)]

    for cpus, l1, l2, together in rows:
        monkeypatch.setattr(drain_tasks, "usable_cpus", lambda cpus=cpus: cpus)
        assert DrainTaskPolicy.cpu_cores(1.0).resolve() == l1
        assert DrainTaskPolicy.cpu_cores_with_base(1, 0.25).resolve() == l2
        assert l1 + l2 + 1 + 4 == together
    assert len(rows) == 6
