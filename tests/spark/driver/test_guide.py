"""The code of the guides runs, in the shared session."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.real_time]

GUIDES = Path(__file__).parents[3] / "docs" / "guides"


@pytest.mark.parametrize(
    # What the slow ones show has tests of its own.
    "name",
    [
        pytest.param("spark", marks=pytest.mark.slow),
        pytest.param("spark_calls", marks=pytest.mark.slow),
        pytest.param("spark_executors", marks=pytest.mark.slow),
        pytest.param("spark_streams", marks=pytest.mark.slow),
        "spark_types",
    ],
)
def test_the_code_of_the_guide_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    guide = GUIDES / f"{name}.md"
    text = guide.read_text("utf-8")
    # Spark resolves relative paths in a JVM that doesn't follow `chdir`.
    text = re.sub(r'"(incoming|checkpoint)"', rf'"{tmp_path}/\1"', text)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "guide", "spark": spark}

    for block in re.finditer(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        source = "\n" * text[: block.start(1)].count("\n") + block[1]
        exec(compile(source, str(guide), "exec"), namespace)
