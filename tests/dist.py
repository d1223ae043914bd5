"""Builds the package and tries it as its user gets it: `make dist`.

The source archive is built, and the wheel from that. The wheel goes into a bare
environment, and there the programs of the README must print what the README says.
With a wheel as its argument it tries that one: `python -m tests.dist dist/*.whl`.
"""

# ruff: noqa: T201  # a program prints

import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A program and what it prints, one below the other.
SHOWN = re.compile(
    r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<output>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
VERSION = "import batchqueue_async as it; print(it.__version__, it.__file__)"


def build() -> Path:
    """Build both files into dist/; return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,) = DIST.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.iterdir()))
    return wheel


def tried(wheel: Path) -> int:
    """Install `wheel` where there is nothing else; return how many programs ran."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory, "venv")
        venv.create(home, with_pip=True)
        python = home / "bin" / "python"
        pip = (python, "-m", "pip", "--disable-pip-version-check", "-qq")
        run(*pip, "install", wheel)
        run(*pip, "check")
        version, _, file = output(python, VERSION, directory).strip().partition(" ")
        # Else it would be the clone's that is tried.
        assert Path(file).is_relative_to(home), file
        assert f"-{version}-" in wheel.name, f"{wheel.name} has {version}"
        programs = shown()
        for code, expected in programs:
            printed = output(python, code, directory)
            assert printed == expected, f"{code}\nprints\n{printed}"
        return len(programs)


def shown() -> list[tuple[str, str]]:
    """The README's programs, each with the output that it shows."""
    page = (ROOT / "README.md").read_text("utf-8")
    pairs = [(found["code"], found["output"]) for found in SHOWN.finditer(page)]
    assert len(pairs) == len(PROGRAM.findall(page)), "a program without its output"
    return pairs


def output(python: Path, code: str, directory: str) -> str:
    """What a program prints that sees neither the clone nor any settings."""
    done = subprocess.run(
        (python, "-I", "-W", "error", "-c", code),
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def main(arguments: list[str]) -> int:
    wheel = Path(arguments[0]).resolve() if arguments else build()
    count = tried(wheel)
    print(f"{wheel.name}: {count} programs of the README run in a bare environment")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
