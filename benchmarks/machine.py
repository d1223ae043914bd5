"""Where and with what it was measured."""

import importlib.util
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "batchqueue-async",
    "uvloop",
    "anyio",
    "janus",
    "culsans",
    "aiologic",
    "aiostream",
    "opentelemetry-sdk",
)


def describe() -> dict[str, str]:
    """Return what a reader of the figures has to know."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "?"
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": f"{cores} cores, {_model()}",
        "load": f"{os.getloadavg()[0]:.1f} at the start",
    }


def versions() -> dict[str, str]:
    """Return the versions of all packages; of one that is not installed "missing"."""
    return {name: _version(name) for name in PACKAGES}


def is_installed(module: str | None) -> bool:
    """Whether a contender's module is there; most need none."""
    if module is None:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = (line.partition(":")[2].strip() for line in lines if "model name" in line)
    return next(names, "unknown")
