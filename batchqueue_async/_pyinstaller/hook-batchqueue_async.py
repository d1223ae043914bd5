"""What is no module: the page of the live view, and what monitoring is set up with."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]

# PyInstaller reads this name: pairs of a file and its folder in the frozen program.
datas = [
    (str(each), str(each.parent.relative_to(PACKAGE.parent)))
    for each in PACKAGE.rglob("*")
    if each.is_file() and each.suffix not in (".py", ".pyc")
]
