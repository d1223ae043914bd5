"""What the package's page shows: addresses, and a README whose links are absolute.

In a clone the links are relative and lead to the clone's own files. On a package's page
they need the repository's address. It has one place, `repository` in pyproject.toml; a
fork, or a build of the address that is right by then, sets PROJECT_REPOSITORY instead.
Without an address links stay as they are.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


class PackagePage(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling, after the version is known."""
        readme = Path(self.root, "README.md").read_text("utf-8")
        address = os.environ.get("PROJECT_REPOSITORY") or self.config["repository"]
        address = address.rstrip("/")
        if address:
            version: str = metadata["version"]
            # A version that is not released has no tag.
            at = "HEAD" if "dev" in version else f"v{version}"
            readme = with_absolute_links(readme, address, at)
            metadata["urls"] = urls(address, at)
        else:
            metadata["urls"] = {}
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def urls(address: str, at: str) -> dict[str, str]:
    """The links beside a package's page, under names that package indexes know."""
    return {
        "Documentation": f"{address}/blob/{at}/docs/index.md",
        "Changelog": f"{address}/blob/{at}/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Source": address,
    }


def with_absolute_links(page: str, address: str, at: str) -> str:
    """Return `page` with links into the repository, as of `at`; code stays as it is."""

    def absolute(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target:
            return link[0]
        if target.startswith("#"):
            # Not every index gives headings an anchor.
            target = f"README.md{target}"
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}[{link['text']}]({address}/{kind}/{at}/{target})"

    # The odd parts are fenced: an index and a call look like a link.
    parts = FENCED.split(page)
    parts[::2] = [LINK.sub(absolute, part) for part in parts[::2]]
    return "".join(parts)
