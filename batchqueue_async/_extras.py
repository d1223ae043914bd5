"""What is said where a package is missing that comes with an extra."""

from __future__ import annotations


def missing(error: ModuleNotFoundError, needed_by: str, extra: str) -> ImportError:
    """Return the error with what to install, instead of a bare name."""
    package = (error.name or "").partition(".")[0]
    msg = f"{needed_by} needs {package}: pip install 'batchqueue-async[{extra}]'"
    return ModuleNotFoundError(msg, name=error.name, path=error.path)
