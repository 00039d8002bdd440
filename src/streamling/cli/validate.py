"""`streamling validate FILE`, and the `--validate` and `--dry-run` forms of a run."""

from __future__ import annotations

import argparse
import json
import sys

from streamling.cli.failure import chain, rendered
from streamling.cli.options import add_common, add_file, pipeline_file, settings_of
from streamling.errors import InvalidPipeline, UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_common(parser)


def execute(options: argparse.Namespace) -> int:
    """Check; say nothing but errors."""
    try:
        _check(options)
    except Exception as error:  # anything at all must become a message and exit code 1
        print(rendered(error, with_trace=options.traceback), file=sys.stderr)
        return 1
    print("valid", file=sys.stderr)
    return 0


def report(options: argparse.Namespace) -> int:
    """Check; print one JSON object, in every case."""
    warnings: list[str] = []
    errors: list[str] = []
    success = True
    try:
        warnings = _check(options)
    except InvalidPipeline as error:
        errors = [chain(problem) for problem in error.problems]
    except UserError as error:
        errors = [chain(error)]
    except Exception as error:  # the report is owed whatever happens
        success, errors = False, [chain(error)]
    print(json.dumps({"success": success, "is_valid": not errors, "errors": errors, "warnings": warnings}, indent=2))
    return 0 if not errors else 1


def _check(options: argparse.Namespace) -> list[str]:
    """All stages a run would go through before it touches anything; returns the warnings."""
    loaded = settings_of(options, level="warn")
    from streamling.engine.preparation import prepare

    prepared = prepare(pipeline_file(options, loaded), loaded.settings)
    return [*loaded.warnings, *prepared.plan.warnings]
