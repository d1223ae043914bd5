"""What is built: the version, and links that work where the clone's files aren't."""

import email.message
import email.parser
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import batchqueue_async
from hatch_build import with_absolute_links
from tests.dist import output, shown

ROOT = Path(__file__).parents[1]
ADDRESS = "https://forge.example/owner/name"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_with(tmp_path_factory.mktemp("dist"), address=ADDRESS)


def built_with(directory: Path, *, address: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    subprocess.run(
        command,
        cwd=ROOT,
        env={"PROJECT_REPOSITORY": address},
        check=True,
        capture_output=True,
    )
    return directory


def metadata(directory: Path) -> email.message.Message:
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("METADATA"))
        text = archive.read(name).decode()
    return email.parser.Parser().parsestr(text)


def test_the_version_has_one_place(built: Path) -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

    assert metadata(built)["Version"] == batchqueue_async.__version__
    assert "version" not in pyproject["project"]


def test_all_links_of_the_package_s_page_are_absolute(built: Path) -> None:
    page = str(metadata(built).get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```$", "", page))

    assert len(links) > 10
    assert [link for link in links if "://" not in link] == []
    assert f"![The page that the demo makes: delays by airline and hour]({ADDRESS}" in (
        page
    )


def test_the_page_names_the_repository_once_and_everywhere(built: Path) -> None:
    urls = metadata(built).get_all("Project-URL")

    assert urls is not None
    assert {url.partition(", ")[0] for url in urls} == {
        "Documentation",
        "Changelog",
        "Issues",
        "Source",
    }
    assert all(url.partition(", ")[2].startswith(ADDRESS) for url in urls)


def test_without_an_address_none_is_made_up(tmp_path: Path) -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    address = pyproject["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    built = metadata(built_with(tmp_path, address=""))
    page = (ROOT / "README.md").read_text("utf-8")

    if address:
        assert f"]({address}/" in str(built.get_payload())
    else:
        assert str(built.get_payload()).strip() == page.strip()
        assert built.get_all("Project-URL") is None


def test_code_is_no_link() -> None:
    page = "[a](b.md) ![i](c.png)\n```py\nQueue[int](x)\n```\n[d](#e) [f](https://g)\n"

    assert with_absolute_links(page, "https://h", "v1") == (
        "[a](https://h/blob/v1/b.md) ![i](https://h/raw/v1/c.png)\n"
        "```py\nQueue[int](x)\n```\n"
        "[d](https://h/blob/v1/README.md#e) [f](https://g)\n"
    )


def test_the_wheel_has_the_two_packages_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert {name.partition("/")[0] for name in names} == {
        "batchqueue_async",
        "pyspark_batchqueue",
        f"batchqueue_async-{batchqueue_async.__version__}.dist-info",
    }
    assert "batchqueue_async/py.typed" in names


def test_the_source_archive_has_what_it_is_built_and_tested_with(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}

    assert names >= {
        "CHANGELOG.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "SECURITY.md",
        "docs/index.md",
        "hatch_build.py",
        "pyproject.toml",
        "tests/test_package.py",
    }


@pytest.mark.parametrize("code, expected", shown())
def test_the_readme_s_programs_print_what_it_says(
    code: str, expected: str, tmp_path: Path
) -> None:
    assert output(Path(sys.executable), code, str(tmp_path)) == expected


def test_the_first_screen_has_the_way_in() -> None:
    first = (ROOT / "README.md").read_text("utf-8").splitlines()[:24]

    assert "in batches, every N items or T seconds" in first[2]
    assert any("pip install" in line for line in first)
    assert any("consumer=store, max_batch=500, linger=1.0" in line for line in first)
