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
from streamling.cli.failure import attempt
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
streamling run pipeline.yaml                  until its input ends or Ctrl-C
streamling pipeline.yaml                      the same
streamling run pipeline.yaml --config prod    with the settings of prod.yaml
streamling run pipeline.yaml > rows.txt       rows of print sinks to a file
streamling pipeline.yaml --validate           check it, print a JSON report
"""
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def run(
    file: File = None,
    config: Config = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Check the pipeline and print a JSON report; do not run it.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the pipeline; do not run it. Exit code 1 if it is invalid.")
    ] = False,
    preview_server: Annotated[
        bool, typer.Option("--preview-server", help="Serve previews of pipelines that clients send; run none.")
    ] = False,
    preview_server_port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Port of the preview server; 0 means any free port.")
    ] = 3001,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Run a pipeline."""
    common = Common(config, verbose, quiet, traceback)
    if preview_server:
        from streamling.cli.preview_server import serve

        if file is not None:
            raise typer.BadParameter("a preview server takes no file; clients send pipelines", param_hint="FILE")
        return attempt(lambda: serve(preview_server_port, common), with_trace=traceback)
    if validate or dry_run:
        from streamling.cli import validate as checking

        return checking.report(file, common) if validate else checking.dry_run(file, common)
    return attempt(lambda: _run(file, common), with_trace=traceback, amend=lambda error: _add_hint(error, file))


def _run(file: str | None, common: Common) -> int:
    loaded = settings_of(common)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    from streamling.cli.summary import log_report, print_block, report_of
    from streamling.engine.protocol.progress import Progress

    path = pipeline_file(file, loaded)
    settings = loaded.settings
    progress = Progress()
    show_table = _wants_table(common, settings)
    if show_table:
        from streamling.cli.display import Display

        with Display(progress, path.name):
            summary = _execute(path, settings, common, progress, shows_table=True)
    else:
        _advise_setup()
        summary = _execute(path, settings, common, progress)
    report = report_of(summary, progress, settings, common.config)
    if show_table:
        print_block(report)
        _prepare_later_starts()
    else:
        log_report(report)
    return 0


def _advise_setup() -> None:
    """Log that `streamling setup` was not run: the author of a service or of an image decides when to run it."""
    from streamling.engine.process.archive import find_archive
    from streamling.engine.process.java import find_java
    from streamling.engine.process.launch import TRAIN_VARIABLE
    from streamling.errors import StreamlingError

    with suppress(StreamlingError):  # the run reports a missing Java itself
        if find_archive(find_java()) is None and TRAIN_VARIABLE not in os.environ:
            log.info(
                "there is no class archive for this Java: run `streamling setup` once to save seconds at every start"
            )


def _prepare_later_starts() -> None:
    """Create the class archive in the background for a user at a terminal who did not run `streamling setup`."""
    from streamling.engine.process.archive import archive_path
    from streamling.engine.process.java import find_java
    from streamling.engine.process.training import train_in_background

    java = find_java()
    if train_in_background(java, archive_path(java)):
        print("\npreparing faster starts in the background: one minute, once for this Java", file=sys.stderr)


def _execute(
    path: Path, settings: Settings, common: Common, progress: Progress, *, shows_table: bool = False
) -> Summary:
    from streamling.engine.execution import Execution
    from streamling.engine.protocol.health import Health
    from streamling.engine.run import Run
    from streamling.telemetry.inspection import samples_for

    samples = samples_for(settings)
    execution = Execution(path, settings, progress, samples)
    health = Health(progress, settings.progress_deadline_secs)
    run = Run(execution, settings, verbose=common.verbose, progress=progress, health=health)
    if not settings.wants_admin_api:
        return run.execute()
    from streamling.web.server import admin_api
    from streamling.web.view import RunView

    with admin_api(RunView(path.name, settings, execution, progress, health, samples), settings) as server:
        if server is not None and shows_table:  # the log is at the level of warnings
            print(f"the admin API listens on {server.url}", file=sys.stderr)
        try:
            return run.execute()
        except Exception as error:
            progress.set_failure(error)
            if server is not None and settings.preview_tolerant_mode:
                run.keep_process()
                _wait_for_stop(error, server.url)
            raise


def _wait_for_stop(error: Exception, url: str) -> None:
    """After a fatal error: keep the process, so that the error can be fetched from the admin API."""
    from streamling.engine.process.signals import listen

    log.error("the pipeline has failed; the admin API keeps serving the error at %s/admin/error: %s", url, error)
    signals = listen()
    while signals.received is None:
        signals.wait(None)


def _wants_table(common: Common, settings: Settings) -> bool:
    """Whether to show the table: on a terminal, if the user has asked for neither fewer nor more logs than usual."""
    from streamling.cli.logs import LogFilter
    from streamling.cli.terminal import can_draw

    usual = LogFilter.parse(common.log_level()) == LogFilter.parse("info")
    return usual and settings.log_format.lower() != "json" and can_draw(sys.stderr)


def _add_hint(error: Exception, file: str | None) -> None:
    """Suggest a command: a mistyped one is treated as a file that does not exist. A word with a dot is a file name."""
    from streamling.errors import PIPELINE_FILE, StreamlingError
    from streamling.spec.faults import nearest

    if file and "." not in file and isinstance(error, StreamlingError) and error.condition is PIPELINE_FILE:
        command = nearest(file, COMMANDS)
        error.hint = f"did you mean the command 'streamling {command}'?" if command else error.hint
