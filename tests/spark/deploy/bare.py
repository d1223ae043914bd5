"""An environment with Spark but without this package: what a cluster is like at first.

What the tests' own environment has installed is linked, but for this package and what
it alone needs. `SPARK_HOME` is a folder of its own, as the local cluster writes there.
"""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

from batchqueue_async.spark import ensure_java

ROOT = Path(__file__).parents[3]
INSTALLED = Path(sysconfig.get_path("purelib"))
# Of this package, and of what comes with it: the cluster has none of them.
OURS = ("batchqueue", "editable", "anyio", "idna", "pyspark_batchqueue")
NEEDED = ("anyio", "idna", "typing_extensions.py")


def bare_environment(home: Path) -> Path:
    """Make it; returns its Python."""
    venv.create(home, symlinks=True)
    (library,) = home.glob("lib/python3.*/site-packages")
    for each in INSTALLED.iterdir():
        if each.name != "pyspark" and not each.name.lstrip("_").startswith(OURS):
            (library / each.name).symlink_to(each)
    spark = library / "pyspark"
    spark.mkdir()
    for each in (INSTALLED / "pyspark").iterdir():
        if each.name != "work":
            (spark / each.name).symlink_to(each)
    return home / "bin" / "python"


def environment_of(python: Path, **more: str) -> dict[str, str]:
    """Return a process's environment in which nothing of the clone is found."""
    ensure_java()
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
    }
    (spark,) = python.parents[1].glob("lib/python3.*/site-packages/pyspark")
    return kept | {
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
        "PYTHONDONTWRITEBYTECODE": "1",
        **more,
    }


def packages_folder(wheel: Path, home: Path) -> Path:
    """Do what `pip install --target packages` does: the wheel and what it needs."""
    target = home / "packages"
    if not target.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(target), str(wheel)], check=True)
        for name in NEEDED:
            # No test asks an index.
            (target / name).symlink_to(INSTALLED / name)
    return target


def packages_zip(wheel: Path, home: Path) -> Path:
    """Do what the guide says: all of it in one zip."""
    target = packages_folder(wheel, home)
    archive = home / "packages.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for found in _files(target):
            file.write(found, found.relative_to(target))
    return archive


def _files(folder: Path) -> list[Path]:
    found = []
    for where, _, names in os.walk(folder, followlinks=True):
        found += [Path(where, name) for name in names if not name.endswith(".pyc")]
    return found


def clone_is_hidden(python: Path, environment: dict[str, str], where: Path) -> bool:
    """Whether the environment has Spark, and really lacks this package."""
    code = (
        "import importlib.util as it, pyspark, pyarrow;"
        "print(it.find_spec('batchqueue_async'), it.find_spec('anyio'))"
    )
    done = subprocess.run(
        [str(python), "-c", code],
        env=environment,
        cwd=where,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split() == ["None", "None"]
