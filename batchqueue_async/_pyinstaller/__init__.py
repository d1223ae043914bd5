"""Tells PyInstaller what a frozen program needs beside the modules that it finds.

It looks for the group `pyinstaller40` among the entry points of what is installed.
"""

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the folder of the hook, under the name that PyInstaller's guide uses."""
    return [str(Path(__file__).parent)]
