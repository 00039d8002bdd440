"""`streamling run FILE`."""

from __future__ import annotations

import argparse
import logging
import sys

from streamling.cli import validate
from streamling.cli.failure import rendered
from streamling.cli.options import add_common, add_file, pipeline_file, settings_of

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_common(parser)
    parser.add_argument("--validate", action="store_true", help="check the pipeline, print a JSON report, run nothing")
    parser.add_argument("--dry-run", action="store_true", help="check the pipeline, report by exit code only")


def execute(options: argparse.Namespace) -> int:
    if options.validate:
        return validate.report(options)
    if options.dry_run:
        return validate.dry_run(options)
    try:
        loaded = settings_of(options)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        from streamling.engine.run import Run

        summary = Run(pipeline_file(options, loaded), loaded.settings, verbose=options.verbose).execute()
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        sys.stdout.flush()
        print(rendered(error, with_trace=options.traceback), file=sys.stderr)
        return 1
    rate = summary.rows / summary.seconds if summary.seconds else 0
    written = ", ".join(f"{name} {rows:,}" for name, rows in summary.written.items())
    log.info(
        "done: %s rows in %d epochs, %.1f s, %.0f rows/s", f"{summary.rows:,}", summary.epochs, summary.seconds, rate
    )
    log.info("written: %s", written or "nothing")
    return 0
