"""`streamling run FILE`."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.commands import COMMANDS
from streamling.cli.options import (
    Common,
    Config,
    File,
    Quiet,
    Traceback,
    Verbose,
    pipeline_file,
    settings_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from streamling.engine.execution import Summary
    from streamling.engine.protocol.progress import Progress
    from streamling.spec.settings import Settings

log = logging.getLogger(__name__)

EXAMPLES = """
streamling run pipeline.yaml                  until the input ends or Ctrl-C
streamling pipeline.yaml                      the same
streamling run pipeline.yaml --config prod    with the settings of prod.yaml
streamling run pipeline.yaml > rows.jsonl     rows of print sinks into a file
streamling pipeline.yaml --validate           check it, print a JSON report
"""
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def run(
    file: File = None,
    config: Config = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Check the pipeline, print a JSON report, run nothing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the pipeline, report by exit code only.")] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Run a pipeline."""
    common = Common(config, verbose, quiet, traceback)
    if validate or dry_run:
        from streamling.cli import validate as checking

        return checking.report(file, common) if validate else checking.dry_run(file, common)
    try:
        return _run(file, common)
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        from streamling.cli.failure import show

        show(_with_command_hint(error, file), with_trace=traceback)
        return 1


def _run(file: str | None, common: Common) -> int:
    loaded = settings_of(common)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    from streamling.cli.summary import report_of, show_report
    from streamling.engine.protocol.progress import Progress

    path, settings, progress = pipeline_file(file, loaded), loaded.settings, Progress()
    if _shown_live(common, settings):
        from streamling.cli.live import Live

        with Live(progress, path.name):
            summary = _executed(path, settings, common, progress)
        show_report(report_of(summary, progress, settings), live=True)
        _prepare_later_starts()
    else:
        _advise_setup()
        summary = _executed(path, settings, common, progress)
        show_report(report_of(summary, progress, settings), live=False)
    return 0


def _advise_setup() -> None:
    """A service, or a container image, is set up by its author."""
    from streamling.engine.process.archive import find_archive
    from streamling.engine.process.java import find_java
    from streamling.engine.process.launch import TRAIN_VARIABLE
    from streamling.errors import StreamlingError

    with suppress(StreamlingError):  # without Java the run says so, in its own form
        if find_archive(find_java()) is None and TRAIN_VARIABLE not in os.environ:
            log.info("this Java has no class archive yet: `streamling setup`, once, makes starts twice as fast")


def _prepare_later_starts() -> None:
    """A user at a terminal who never ran `streamling setup` gets what it makes nevertheless."""
    from streamling.engine.process.archive import archive_path
    from streamling.engine.process.java import find_java
    from streamling.engine.process.training import train_in_background

    java = find_java()
    if train_in_background(java, archive_path(java)):
        print("\nmaking later starts faster, in the background: one minute, once for this Java", file=sys.stderr)


def _executed(path: Path, settings: Settings, common: Common, progress: Progress) -> Summary:
    from streamling.engine.run import Run

    return Run(path, settings, verbose=common.verbose, progress=progress).execute()


def _shown_live(common: Common, settings: Settings) -> bool:
    """Somebody looks at a terminal and has asked neither for less nor for more than usual."""
    from streamling.cli.logs import LogFilter
    from streamling.cli.terminal import drawable

    usual = LogFilter.parse(common.log_level()) == LogFilter.parse("info")
    return usual and settings.log_format.lower() != "json" and drawable(sys.stderr)


def _with_command_hint(error: Exception, file: str | None) -> Exception:
    """A mistyped command is taken for a file that is not there. A word with a dot was meant to be a file."""
    from streamling.errors import PIPELINE_FILE, StreamlingError
    from streamling.spec.faults import nearest

    if file and "." not in file and isinstance(error, StreamlingError) and error.condition is PIPELINE_FILE:
        meant = nearest(file, COMMANDS)
        error.hint = f"did you mean the command 'streamling {meant}'?" if meant else error.hint
    return error
