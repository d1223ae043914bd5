"""Spark finds a Java, also where the machine has none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchqueue_async.spark import java as java_runtime
from tests.support import fast_java

ROOT = Path(__file__).parents[1]

JOB = """
from examples.spark_session import quiet_session
session = quiet_session("no java", master="local[1]")
print(session.range(10).count())
session.stop()
"""


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _fake_java(tmp_path / "old", '1.8.0_402"')
    new = _fake_java(tmp_path / "new", '21.0.8" 2025-07-15')
    monkeypatch.setenv("JAVA_HOME", str(old.parents[1]))
    monkeypatch.setenv("PATH", str(new.parent), prepend=os.pathsep)

    assert java_runtime._java_of_the_machine() == new


def test_a_machine_without_java_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(tmp_path))

    assert java_runtime._java_of_the_machine() is None


def test_the_shim_drops_one_argument_and_no_other(tmp_path: Path) -> None:
    java = _fake_java(tmp_path / "a folder", '17.0.15"')
    home = java_runtime._make_shim(java)
    arguments = ["-Xmx1g", java_runtime.UNWANTED, "with space", "", "--add-modules=x"]

    answer = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )

    arguments.remove(java_runtime.UNWANTED)
    assert answer.stdout.splitlines() == arguments


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(200)
def test_spark_runs_in_silence_on_a_machine_without_java(tmp_path: Path) -> None:
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            link = tmp_path / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    answer = subprocess.run(
        [sys.executable, "-c", JOB],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (answer.stdout, answer.stderr) == ("10\n", "")


def _fake_java(home: Path, version: str) -> Path:
    """A `java` that prints its arguments, each on a line, and its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\necho \'openjdk version "{version}\' >&2\nprintf "%s\\n" "$@"\n'
    )
    java.chmod(0o700)
    return java


def test_the_java_with_an_archive_is_taken_where_it_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", "to be put back in the end")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(fast_java, "HOME", tmp_path)
    monkeypatch.setattr(fast_java, "LAUNCHER", tmp_path / "java")
    fast_java.use()
    assert "JAVA_HOME" not in os.environ
    (tmp_path / "java").touch()
    fast_java.use()
    assert os.environ["JAVA_HOME"] == str(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "chosen")
    fast_java.use()
    assert os.environ["JAVA_HOME"] == "chosen"
