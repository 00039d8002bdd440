"""What the commands of `streamling dev` share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streamling.dev.onlooker import Onlooker
    from streamling.dev.stack import Stack

DIRECTORY = Path(".streamling/dev")
_INTERRUPTED = 130


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


Directory = Annotated[Path, typer.Option(metavar="PATH", help="Where the servers keep their data, logs and records.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="Text for people, JSON for programs.")]


def opened(directory: Path, onlooker: Onlooker | None = None) -> Stack:
    from streamling.dev.stack import Stack

    return Stack(directory, onlooker)


def reported(action: Callable[[], int], *, with_trace: bool, interrupted: int = _INTERRUPTED) -> int:
    """The exit code of an action, whose failure is shown. `interrupted` is that of one that was ended by Ctrl-C."""
    try:
        return action()
    except KeyboardInterrupt:
        return interrupted
    except BrokenPipeError:
        raise
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        from streamling.cli.failure import show

        show(error, with_trace=with_trace)
        return 1
