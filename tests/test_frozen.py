"""A program that PyInstaller has frozen finds what is no module of the package."""

import runpy
from importlib.metadata import entry_points
from pathlib import Path

import batchqueue_async

PACKAGE = Path(batchqueue_async.__file__).parent


def test_pyinstaller_is_told_of_all_files_that_are_no_modules() -> None:
    (entry,) = (
        each
        for each in entry_points(group="pyinstaller40", name="hook-dirs")
        if each.module.startswith("batchqueue_async.")
    )
    (folder,) = entry.load()()
    told = runpy.run_path(str(Path(folder, "hook-batchqueue_async.py")))["datas"]
    there = {Path(where, Path(file).name) for file, where in told}

    assert {each.name for each in there} >= {
        "page.html",
        "alerts.yml",
        "dashboard.json",
    }
    for each in there:
        assert (PACKAGE.parent / each).is_file()
