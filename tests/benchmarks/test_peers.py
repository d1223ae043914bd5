"""Peers are for comparing: none of them is needed, or shipped, by the package."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_aiostream_whose_licence_is_the_gpl_is_a_development_dependency_only() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

    assert "aiostream" not in str(settings["project"])
    assert "aiostream" in str(settings["dependency-groups"]["bench"])


def test_only_the_benchmarks_import_it() -> None:
    sources = [*ROOT.glob("batchqueue_async/**/*.py"), *ROOT.glob("examples/**/*.py")]

    assert not [file for file in sources if "aiostream" in file.read_text("utf-8")]
