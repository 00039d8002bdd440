"""Arguments that several commands share, and the settings they select."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.completion import pipeline_files

if TYPE_CHECKING:
    from streamling.spec.settings import LoadedSettings


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Pipeline file; by default ./pipeline.yaml.",
        autocompletion=pipeline_files,
        show_default=False,
    ),
]
Config = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Configuration file; by default ./config.yaml, if it exists.",
        autocompletion=pipeline_files,
        show_default=False,
    ),
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show more logs, including those of Spark.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show only warnings and errors.")]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show stack traces of errors.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="Text for people, JSON for programs.")]
Probe = Annotated[
    bool, typer.Option("--probe", help="Also look up the columns of sources in registries, files and databases.")
]


@dataclass(frozen=True, slots=True)
class Common:
    """The options of every command that reads the settings."""

    config: str | None = None
    verbose: bool = False
    quiet: bool = False
    traceback: bool = False

    def __post_init__(self) -> None:
        if self.verbose and self.quiet:
            raise typer.BadParameter("-q and -v cannot be used together", param_hint="-q")

    def log_level(self, default: str = "info") -> str:
        """The log filter from the arguments or the environment."""
        return "debug" if self.verbose else "warn" if self.quiet else os.environ.get("RUST_LOG", default)


def settings_of(common: Common, *, level: str = "info") -> LoadedSettings:
    """Load the settings, and start logging with their format and the level of the arguments."""
    from streamling.cli.logs import start_logging
    from streamling.spec.settings import load_settings

    loaded = load_settings(config=common.config, environ=os.environ, cwd=Path.cwd())
    start_logging(format_=loaded.settings.log_format, level=common.log_level(level))
    return loaded


def pipeline_file(file: str | None, loaded: LoadedSettings) -> Path:
    return Path(file or loaded.settings.pipeline_definition_location)
