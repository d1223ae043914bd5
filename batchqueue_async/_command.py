"""The command `batchqueue`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

from batchqueue_async._extras import missing
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._version import __version__
from batchqueue_async.simulation._command import add_arguments, run
from batchqueue_async.telemetry._socket import read_view

_LAST_PORT: Final = 65_535


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `batchqueue`; returns its exit status."""
    parser = argparse.ArgumentParser(prog="batchqueue", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    top = commands.add_parser("top", help="look at the queues of a running process")
    top.add_argument("path", help="the socket that it opened with `open_view`")
    top.add_argument("--once", action="store_true", help="print one picture, and end")
    top.add_argument("--web", action="store_true", help="serve a page instead")
    top.add_argument("--port", type=_port, default=8765, help="of the page")
    for name, what in [("alerts", "Prometheus"), ("dashboard", "Grafana")]:
        commands.add_parser(name, help=f"print what to give to {what}")
    add_arguments(
        commands.add_parser("plan", help="find the setting that carries a load")
    )
    chosen = parser.parse_args(arguments)
    try:
        status = _run(chosen)
        # Here and not at the exit, where it could only be complained of.
        print(end="", flush=True)  # noqa: T201 - a command
    except BrokenPipeError:
        # Whoever reads it has enough, as `head` does; nor is the rest written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except BatchQueueError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command
        return 1
    except KeyboardInterrupt:
        return 0
    return status


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _LAST_PORT:
        msg = f"must be a number from 1 to {_LAST_PORT}, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _run(chosen: argparse.Namespace) -> int:
    if chosen.command == "plan":
        return run(chosen)
    if chosen.command == "top":
        try:
            _top(chosen)
        except ModuleNotFoundError as error:
            msg = str(missing(error, "batchqueue top", "top"))
            raise BatchQueueError(msg) from error
    else:
        name = {"alerts": "alerts.yml", "dashboard": "dashboard.json"}[chosen.command]
        monitoring = files("batchqueue_async.telemetry") / "monitoring"
        print((monitoring / name).read_text("utf-8"), end="")  # noqa: T201
    return 0


def _top(chosen: argparse.Namespace) -> None:
    if chosen.web:
        from batchqueue_async.telemetry._web import serve  # noqa: PLC0415 - its extra

        serve(chosen.path, chosen.port)
        return
    from rich.console import Console  # noqa: PLC0415 - its extra

    # Bars and names may have what the terminal's encoding has not.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    from batchqueue_async.telemetry._top import show  # noqa: PLC0415

    show(read_view(chosen.path), Console(), once=chosen.once)
