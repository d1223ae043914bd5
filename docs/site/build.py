"""Builds the documentation as a site: `make docs`.

The pages are those of the repository, so that they read well there, too. What a site
needs besides is made here: a tree of contents, pages of the examples' code, and the
reference of all public names. Whatever is wrong with a link or a name ends the build.
"""

# ruff: noqa: T201  # a program prints

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "docs"
SITE = ROOT / "out" / "docs"

FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")

REFERENCE = {
    "batchqueue_async": "The queue, the manager, and the bridge",
    "batchqueue_async.logging": "Logging",
    "batchqueue_async.ring": "The ring",
    "batchqueue_async.sinks": "Sinks",
    "batchqueue_async.sinks.sqlite": "Sinks: SQLite",
    "batchqueue_async.sinks.postgres": "Sinks: PostgreSQL",
    "batchqueue_async.sinks.parquet": "Sinks: Parquet",
    "batchqueue_async.sinks.staged": "Staged sinks",
    "batchqueue_async.sinks.postgres_staged": "Staged sinks: PostgreSQL",
    "batchqueue_async.sinks.parquet_staged": "Staged sinks: Parquet",
    "batchqueue_async.sinks.sqlite_staged": "Staged sinks: SQLite",
    "batchqueue_async.spark": "Spark",
    "batchqueue_async.telemetry": "Telemetry",
    "batchqueue_async.simulation": "Simulation",
    "batchqueue_async.testing": "Testing",
}

CONTENTS = {
    "Begin here": ["docs/tutorial", "docs/index"],
    "Guides": ["docs/guides/*"],
    "Coming from": ["docs/migrating", "docs/from_skywalking"],
    "Reference": [
        *(f"api/{module}" for module in REFERENCE),
        *("docs/troubleshooting", "CHANGELOG"),
    ],
    "Background": [
        *("docs/ring", "docs/scale", "docs/benchmarks", "docs/reliability"),
        *("docs/design", "CONTRIBUTING"),
    ],
}
"""What stands in the sidebar: pages, without those that there are not."""


def main() -> int:
    """Build the site; returns the exit status."""
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    for source, page in pages():
        target = PAGES / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page_of(source), "utf-8")
    images = PAGES / "docs" / "images"
    shutil.copytree(ROOT / "docs" / "images", images)
    take_pictures(images)
    seen: set[int] = set()
    for module, title in REFERENCE.items():
        target = PAGES / "api" / f"{module}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(reference(module, title, seen), "utf-8")
    with (PAGES / "index.md").open("a", encoding="utf-8") as index:
        index.write(contents())
    shutil.copy(Path(__file__).with_name("conf.py"), PAGES)
    (PAGES / "_static").mkdir()
    shutil.copy(Path(__file__).with_name("site.css"), PAGES / "_static")
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    status = subprocess.call([sys.executable, *command, str(PAGES), str(SITE)])
    if status == 0:
        print(f"{SITE / 'index.html'}")
    return status


def take_pictures(folder: Path) -> None:
    """Let the pictures show what this version looks like, if there is a browser."""
    if shutil.which("chromium") is None:
        print("No chromium: the pictures are those of the repository.")
        return
    command = [sys.executable, "-m", "tests.telemetry.screenshots", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)


def pages() -> Iterator[tuple[Path, Path]]:
    """Yield each source with its page; the README is the first one."""
    yield ROOT / "README.md", Path("index.md")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        yield ROOT / name, Path(name)
    for source in sorted((ROOT / "docs").rglob("*.md")):
        yield source, source.relative_to(ROOT)
    for source in sorted((ROOT / "examples").rglob("*")):
        if source.suffix == ".md":
            yield source, source.relative_to(ROOT)
        elif source.suffix == ".py":
            yield source, source.relative_to(ROOT).with_suffix(".py.md")


def page_of(source: Path) -> str:
    """Return what a source looks like on the site."""
    text = source.read_text("utf-8")
    if source.suffix == ".py":
        title = source.relative_to(ROOT)
        return f"---\norphan: true\n---\n\n# {title}\n\n````python\n{text}````\n"
    parts = FENCED.split(text)
    # Every other part is code.
    parts[::2] = [LINK.sub(lambda link: led(link, source), each) for each in parts[::2]]
    front = "" if source == ROOT / "README.md" else "---\norphan: true\n---\n\n"
    return front + "".join(parts)


def led(link: re.Match[str], source: Path) -> str:
    """Return a link that leads to the page of what it leads to in the repository."""
    target = link["target"]
    if "://" in target or target.startswith("#"):
        return link[0]
    path, hash_mark, anchor = target.partition("#")
    found = (source.parent / path).resolve()
    if (found / "README.md").exists():
        path, found = f"{path.rstrip('/')}/README.md", found / "README.md"
    if not found.exists():
        msg = f"{source.relative_to(ROOT)} leads to {target}, which is not there"
        raise SystemExit(msg)
    inside = found.relative_to(ROOT)
    if inside == Path("README.md"):
        path = path.replace("README.md", "index.md")
    elif inside.parts[0] == "examples" and found.suffix == ".py":
        path += ".md"
    elif found.suffix not in (".md", ".svg", ".png"):
        # No page of the site: its text will do.
        return link["text"]
    return f"{link['image']}[{link['text']}]({path}{hash_mark}{anchor})"


def contents() -> str:
    """Return the trees of contents, as the sidebar shows them."""
    index = (ROOT / "docs" / "index.md").read_text("utf-8")

    def place(page: Path) -> int:
        # Guides are read in the index's order.
        return index.find(f"({page.parent.name}/{page.name})")

    parts = []
    for caption, names in CONTENTS.items():
        groups = [sorted(PAGES.glob(f"{name}.md"), key=place) for name in names]
        found = [page for group in groups for page in group]
        entries = "\n".join(str(each.relative_to(PAGES))[:-3] for each in found)
        options = f":hidden:\n:caption: {caption}"
        parts.append(f"\n```{{toctree}}\n{options}\n\n{entries}\n```\n")
    return "".join(parts)


def reference(module: str, title: str, seen: set[int]) -> str:
    """Return the page of a module's public names that no page before has."""
    public = importlib.import_module(module)
    lines = [f"# {title}", "", f"`{module}`", "", "```{eval-rst}"]
    lines += [f".. automodule:: {module}", "   :no-members:"]
    for name in public_names(public):
        value = getattr(public, name)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, type):
            lines += ["", f".. autoclass:: {module}.{name}", "   :members:"]
        elif callable(value):
            lines += ["", f".. autofunction:: {module}.{name}"]
        else:
            lines += ["", f".. autodata:: {module}.{name}", "   :no-value:"]
    return "\n".join([*lines, "```", ""])


def public_names(module: ModuleType) -> list[str]:
    """Return what a module offers: what it says, or what is made in it."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type | FunctionType)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


if __name__ == "__main__":
    sys.exit(main())
