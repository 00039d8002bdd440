"""`streamling validate FILE`, and the `--validate` and `--dry-run` forms of a run.

Two levels: the file alone, without network and JVM, and `--probe`, which looks up the columns of sources in
registries, files and databases. The compatible forms of a run always probe, as a run itself does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.options import (
    Common,
    Config,
    File,
    Probe,
    Quiet,
    Traceback,
    Verbose,
    pipeline_file,
    settings_of,
)
from streamling.errors import (
    CONFIG_FILE,
    INTERNAL,
    MESSAGE_KEY,
    SETTING_INVALID,
    SOURCE_FILTER,
    UNKNOWN_SETTING,
    Caution,
    InvalidPipeline,
    StreamlingError,
    UserError,
)

# A check cannot be carried out without settings. The others are mistakes of users, but tools that read the report
# know them as failures of the check itself.
_UNSUCCESSFUL = (CONFIG_FILE, SETTING_INVALID, SOURCE_FILTER, MESSAGE_KEY)


EXAMPLES = """
streamling validate orders.yaml                  the file alone, offline
streamling validate orders.yaml --probe          registries and databases too
streamling validate orders.yaml --format json    a report for programs
"""
app = new_app()


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(slots=True)
class Outcome:
    """What a check found."""

    file: Path | None = None
    nodes: int = 0
    failure: Exception | None = None
    warnings: list[str | Caution] = field(default_factory=list)

    @property
    def problems(self) -> Sequence[Exception]:
        if self.failure is None:
            return ()
        return self.failure.problems if isinstance(self.failure, InvalidPipeline) else (self.failure,)


@app.command(cls=Command, epilog=EXAMPLES)
def validate(
    file: File = None,
    probe: Probe = False,
    format_: Annotated[Format, typer.Option("--format", help="Text for people, JSON for programs.")] = Format.TEXT,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Check a pipeline without running it."""
    outcome = _outcome(file, Common(config, verbose, quiet, traceback), probe=probe)
    return _report(outcome) if format_ is Format.JSON else _tell(outcome, with_trace=traceback)


def report(file: str | None, common: Common) -> int:
    """`--validate`: one JSON object on stdout, in every case."""
    return _report(_outcome(file, common, probe=True))


def dry_run(file: str | None, common: Common) -> int:
    return _tell(_outcome(file, common, probe=True), with_trace=common.traceback)


def _outcome(file: str | None, common: Common, *, probe: bool) -> Outcome:
    """All stages a run would go through before it touches anything."""
    outcome = Outcome()
    try:
        loaded = settings_of(common, level="warn")
        outcome.warnings.extend(loaded.warnings)
        outcome.file = pipeline_file(file, loaded)
        from streamling.engine.preparation import check

        plan = check(outcome.file, loaded.settings, probe=probe)
        outcome.nodes = len(plan.nodes)
        outcome.warnings.extend(plan.cautions)
    except Exception as error:  # the outcome is owed whatever happens
        outcome.failure = error
        outcome.warnings.extend(error.cautions if isinstance(error, InvalidPipeline) else ())
    return outcome


def _tell(outcome: Outcome, *, with_trace: bool) -> int:
    """Errors first: they are what must be mended."""
    from streamling.cli.failure import show, show_caution

    if outcome.failure is not None:
        show(outcome.failure, with_trace=with_trace)
    for warning in outcome.warnings:
        show_caution(warning)
    if outcome.failure is not None:
        return 1
    print(f"{outcome.file}: valid, {outcome.nodes} nodes", file=sys.stderr)
    return 0


def _report(outcome: Outcome) -> int:
    from streamling.cli.failure import chain, with_hint

    problems = outcome.problems
    content = {
        "success": all(_successful(problem) for problem in problems),
        "is_valid": not problems,
        "errors": [chain(problem) for problem in problems],
        "warnings": [w if isinstance(w, str) else with_hint(w.message, w.hint) for w in outcome.warnings],
        "problems": [_entry("error", problem) for problem in problems]
        + [_entry("warning", warning) for warning in outcome.warnings],
    }
    print(json.dumps(content, indent=2, ensure_ascii=False))
    return 1 if problems else 0


def _successful(problem: Exception) -> bool:
    return isinstance(problem, UserError) and problem.condition not in _UNSUCCESSFUL


def _entry(severity: str, found: Exception | Caution | str) -> dict[str, object]:
    if isinstance(found, StreamlingError | Caution):
        where = found.where
        return {
            "severity": severity,
            "code": found.code,
            "message": found.message,
            "node": found.node,
            "file": where.file if where else None,
            "line": where.line if where else None,
            "column": where.column if where else None,
            "hint": found.hint,
        }
    message = found if isinstance(found, str) else f"{type(found).__name__}: {found}"
    code = UNKNOWN_SETTING.code if isinstance(found, str) else INTERNAL.code
    empty = dict.fromkeys(("node", "file", "line", "column", "hint"))
    return {"severity": severity, "code": code, "message": message, **empty}
