"""What the commands of `streamling dev` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streamling.dev.observer import Observer
    from streamling.dev.stack import Stack

DIRECTORY = Path(".streamling/dev")
INTERRUPTED = 130
"""The exit code after Ctrl-C, as in shells."""
Directory = Annotated[Path, typer.Option(metavar="PATH", help="Directory for data, logs and records of the servers.")]


def open_stack(directory: Path, observer: Observer | None = None) -> Stack:
    from streamling.dev.stack import Stack

    return Stack(directory, observer)
