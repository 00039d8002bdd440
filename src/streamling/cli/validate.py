"""`streamling validate FILE`, and the `--validate` and `--dry-run` forms of a run.

Two levels: the file alone, without network and JVM, and `--probe`, which looks up the columns of sources in
registries, files and databases. `--validate` and `--dry-run` always probe, as a run does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamling.cli.app import Command, new_app
from streamling.cli.options import (
    Common,
    Config,
    File,
    Format,
    OutputFormat,
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
from streamling.spec.mask import mask_text

# Without settings no check is possible. The other two are errors in the pipeline, but programs that read the report
# expect them as failures of the check itself.
_UNSUCCESSFUL = (CONFIG_FILE, SETTING_INVALID, SOURCE_FILTER, MESSAGE_KEY)


EXAMPLES = """
streamling validate orders.yaml                  the file only, offline
streamling validate orders.yaml --probe          also registries, databases
streamling validate orders.yaml --format json    a report for programs
"""
app = new_app()


@dataclass(slots=True)
class Outcome:
    """The result of a check."""

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
    format_: OutputFormat = Format.TEXT,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Check a pipeline without running it."""
    outcome = _outcome(file, Common(config, verbose, quiet, traceback), probe=probe)
    return _print_json(outcome) if format_ is Format.JSON else _print_text(outcome, with_trace=traceback)


def report(file: str | None, common: Common) -> int:
    """`--validate`: one JSON object on stdout, whatever happens."""
    return _print_json(_outcome(file, common, probe=True))


def dry_run(file: str | None, common: Common) -> int:
    """`--dry-run`: problems as text on stderr."""
    return _print_text(_outcome(file, common, probe=True), with_trace=common.traceback)


def _outcome(file: str | None, common: Common, *, probe: bool) -> Outcome:
    """Run all the checks that a run makes before it reads or writes anything."""
    outcome = Outcome()
    try:
        loaded = settings_of(common, level="warn")
        outcome.warnings.extend(loaded.warnings)
        outcome.file = pipeline_file(file, loaded)
        from streamling.engine.preparation import check

        plan = check(outcome.file, loaded.settings, probe=probe)
        outcome.nodes = len(plan.nodes)
        outcome.warnings.extend(plan.cautions)
    except Exception as error:  # the report must be printed whatever happens
        outcome.failure = error
        outcome.warnings.extend(error.cautions if isinstance(error, InvalidPipeline) else ())
    return outcome


def _print_text(outcome: Outcome, *, with_trace: bool) -> int:
    """Errors first: they must be fixed."""
    from streamling.cli.failure import show, show_caution

    if outcome.failure is not None:
        show(outcome.failure, with_trace=with_trace)
    for warning in outcome.warnings:
        show_caution(warning)
    if outcome.failure is not None:
        return 1
    print(f"{outcome.file}: valid, {outcome.nodes} nodes", file=sys.stderr)
    return 0


def _print_json(outcome: Outcome) -> int:
    from streamling.cli.failure import chain, with_hint

    problems = outcome.problems
    content = {
        "success": all(_is_of_pipeline(problem) for problem in problems),
        "is_valid": not problems,
        "errors": [chain(problem) for problem in problems],
        "warnings": [mask_text(w if isinstance(w, str) else with_hint(w.message, w.hint)) for w in outcome.warnings],
        "problems": [problem_entry("error", problem) for problem in problems]
        + [problem_entry("warning", warning) for warning in outcome.warnings],
    }
    print(json.dumps(content, indent=2, ensure_ascii=False))
    return 1 if problems else 0


def _is_of_pipeline(problem: Exception) -> bool:
    """Whether the check worked, and found an error in the pipeline."""
    return isinstance(problem, UserError) and problem.condition not in _UNSUCCESSFUL


def problem_entry(severity: str, problem: Exception | Caution | str) -> dict[str, object]:
    if isinstance(problem, StreamlingError | Caution):
        where = problem.where
        return {
            "severity": severity,
            "code": problem.code,
            "message": mask_text(problem.message),
            "node": problem.node,
            "file": where.file if where else None,
            "line": where.line if where else None,
            "column": where.column if where else None,
            "hint": mask_text(problem.hint) if problem.hint else None,
        }
    message = problem if isinstance(problem, str) else f"{type(problem).__name__}: {problem}"
    code = UNKNOWN_SETTING.code if isinstance(problem, str) else INTERNAL.code
    empty = dict.fromkeys(("node", "file", "line", "column", "hint"))
    return {"severity": severity, "code": code, "message": mask_text(message), **empty}
