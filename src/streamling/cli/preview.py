"""`streamling preview FILE`: the columns and the first rows of every node, without sinks."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamling.cli.app import Command, new_app
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

    from streamling.engine.preview import End, LiveRows, NodePreview, Preview
    from streamling.errors import Caution
    from streamling.plan.planned_node import PlannedNode
    from streamling.plan.types import Schema
    from streamling.spec.pipeline import NodeSpec
    from streamling.telemetry.inspection import Sample

EXAMPLES = """
streamling preview orders.yaml                 10 rows of every node
streamling preview orders.yaml --node big      one node and what it needs
streamling preview orders.yaml --rows 3        fewer rows
streamling preview orders.yaml --format json   for programs
"""

# More rows are read with a print sink.
_MAX_ROWS = 1000
_MAX_SECONDS = 600
# As the preview server does.
_EVENT_SECONDS = 180.0
app = new_app()


class PreviewFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    EVENTS = "events"


@app.command(cls=Command, epilog=EXAMPLES)
def preview(
    file: File = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="Show only this node; may be repeated.", show_default=False),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=_MAX_ROWS, metavar="N", help="Rows of each node.")] = 10,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=_MAX_SECONDS,
            metavar="S",
            help="How long to wait for rows; by default until the sources have no more, at most 10.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        PreviewFormat,
        typer.Option("--format", help="Tables, one JSON document, or events: a JSON object per row while rows arrive."),
    ] = PreviewFormat.TEXT,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Show the columns and first rows of every node. Sinks are not contacted, and no position is stored.

    The pipeline may be unfinished: nodes with errors are left out.
    """
    common = Common(config, verbose, quiet, traceback)
    return attempt(
        lambda: _preview(file, common, tuple(node or ()), rows, seconds, format_),
        with_trace=traceback,
    )


def _preview(
    file: str | None, common: Common, nodes: tuple[str, ...], rows: int, seconds: float | None, format_: PreviewFormat
) -> int:
    from streamling.engine.preview import Preview, PreviewOptions, preview_settings
    from streamling.engine.run import Run

    loaded = settings_of(common, level="warn")
    path, settings = pipeline_file(file, loaded), preview_settings(loaded.settings)
    events = _Events() if format_ is PreviewFormat.EVENTS else None
    if events is not None:
        seconds = seconds or _EVENT_SECONDS
    made = Preview(path, settings, PreviewOptions(rows, seconds, nodes, events.live() if events else None))
    failure: Exception | None = None
    with _waiting(path, common):
        try:
            Run(made, settings, verbose=common.verbose).execute()
        except Exception as error:  # what was seen until then is shown
            failure = error
    shown = made.nodes()
    warnings: list[str | Caution] = [*loaded.warnings, *made.planned.cautions]
    problems = _problems(made, failure)
    if format_ is PreviewFormat.JSON:
        _print_json(path, made, shown, problems, warnings)
    else:
        if events is not None:
            events.end(made.end)
        else:
            _print_tables(made, shown)
        _show_problems(problems, warnings, common)
    return 0 if any(node.columns is not None and node.problem is None for node in shown) and failure is None else 1


def _waiting(path: Path, common: Common) -> AbstractContextManager[object]:
    """A line on the terminal while Java starts and rows are read."""
    from streamling.cli.terminal import can_draw

    if not can_draw(sys.stderr) or common.quiet or common.verbose:
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(f"reading {path.name}", spinner_style="dim")


def _problems(made: Preview, failure: Exception | None) -> list[Exception]:
    from streamling.errors import InvalidPipeline

    problems: list[Exception] = [*made.planned.problems, *made.failures.values()]
    if failure is not None:
        problems += failure.problems if isinstance(failure, InvalidPipeline) else (failure,)
    return list(dict.fromkeys(problems))


class _Events:
    """Prints rows while they arrive, a JSON object per line: first the nodes, then rows, then the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def live(self) -> LiveRows:
        from streamling.engine.preview import LiveRows

        return LiveRows(self._start, self._emit)

    def _start(self, nodes: Sequence[PlannedNode]) -> None:
        described = [{**_identity(node.spec), "columns": _columns(node.columns)} for node in nodes]
        self._print(json.dumps({"event": "start", "nodes": described}, ensure_ascii=False))

    def _emit(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            self._print(sample.event())

    def end(self, end: End) -> None:
        self._print(json.dumps({"event": "end", "reason": end.name.lower()}))

    def _print(self, line: str) -> None:
        with self._lock:  # nodes have threads of their own
            print(line, flush=True)


def _print_tables(made: Preview, shown: list[NodePreview]) -> None:
    from streamling.cli.preview_table import preview_lines
    from streamling.cli.terminal import print_styled, size

    print_styled(sys.stdout, preview_lines(shown, made.end, size(sys.stdout)[0]))


def _show_problems(problems: list[Exception], warnings: list[str | Caution], common: Common) -> None:
    from streamling.cli.failure import show, show_caution
    from streamling.errors import InvalidPipeline, StreamlingError

    for problem in [p for p in problems if not isinstance(p, StreamlingError)]:
        show(problem, with_trace=common.traceback)
    ours: list[StreamlingError] = [p for p in problems if isinstance(p, StreamlingError)]
    if ours:
        show(InvalidPipeline(ours), with_trace=common.traceback)
    for warning in warnings:
        show_caution(warning)


def _print_json(
    path: Path,
    made: Preview,
    shown: list[NodePreview],
    problems: list[Exception],
    warnings: list[str | Caution],
) -> None:
    from streamling.cli.validate import problem_entry

    content = {
        "pipeline": str(path),
        "end": made.end.name.lower(),
        "nodes": [_as_json(node) for node in shown],
        "problems": [problem_entry("error", problem) for problem in problems]
        + [problem_entry("warning", warning) for warning in warnings],
    }
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _as_json(node: NodePreview) -> dict[str, Any]:
    return {
        **_identity(node.spec),
        "columns": _columns(node.columns),
        "rows": list(node.rows),
        "rows_read": node.count,
        "rows_rejected": node.rejected,
        "problem": node.problem,
    }


def _identity(spec: NodeSpec) -> dict[str, str]:
    return {"name": spec.name, "role": spec.role.value, "type": spec.type}


def _columns(columns: Schema | None) -> list[dict[str, object]] | None:
    if columns is None:
        return None
    return [{"name": c.name, "type": str(c.type), "nullable": c.nullable} for c in columns]
