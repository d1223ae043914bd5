"""What an epoch's manifest says of where it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

MANIFEST: Final = "_manifest.json"


def checkpoint_in(folder: Path) -> str | None:
    """Return the checkpoint of the stream that the folder's epoch came from.

    None where nobody knows: earlier versions noted none, and the data stands without
    its manifest, too.
    """
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        checkpoint = content.get("checkpoint")
    except (OSError, ValueError, AttributeError):
        return None
    return checkpoint if isinstance(checkpoint, str) else None
