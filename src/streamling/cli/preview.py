"""`streamling preview FILE`: the columns and the first rows of every node, without sinks."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.failure import attempt, is_closed
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
    from streamling.errors import Caution, StreamlingError
    from streamling.plan.planned_node import PlannedNode
    from streamling.plan.types import Schema
    from streamling.spec.pipeline import NodeSpec, PipelineText
    from streamling.spec.settings import LoadedSettings
    from streamling.telemetry.inspection import Sample

EXAMPLES = """
streamling preview orders.yaml                 10 rows of every node
streamling preview orders.yaml --node big      one node and what it needs
streamling preview orders.yaml --rows 3        fewer rows
streamling preview orders.yaml --format json   for programs
streamling preview - < orders.yaml             from standard input
"""

# More rows are read with a print sink.
_MAX_ROWS = 1000
_MAX_SECONDS = 600
# As the preview server does.
_EVENT_SECONDS = 180.0
_READER_CHECK_S = 0.5
# Warnings, and what functions of users print: they are looked at while they are written.
_LOG_LEVEL = "warn,streamling.transforms.python=info,streamling.transforms.script=info"
# The file name that means standard input, and what errors call it: modules of Python transforms are searched beside it.
# It is not the name of a file that could be there: errors quote the lines of files.
_STDIN = "-"
_STDIN_NAME = "<stdin>"
# Characters that JSON allows in a text, but that a terminal obeys or that cannot be encoded.
_UNSAFE = re.compile("[\x7f-\x9f\ud800-\udfff]")
_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")
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
    from streamling.engine.preview import End, Preview, PreviewOptions, preview_settings
    from streamling.engine.run import Run

    loaded = settings_of(common, level="warn" if format_ is PreviewFormat.EVENTS else _LOG_LEVEL)
    pipeline, settings = _read_pipeline(file, loaded), preview_settings(loaded.settings)
    output = sys.stdout
    events = _Events(output) if format_ is PreviewFormat.EVENTS else None
    if events is not None:
        seconds = seconds or _EVENT_SECONDS
    made = Preview(pipeline, settings, PreviewOptions(rows, seconds, nodes, events.live() if events else None))
    failure: Exception | None = None
    with _stop_without_reader(output) if events else _waiting(pipeline, common):
        try:
            with redirect_stdout(sys.stderr):  # what plugins print is not part of the output
                Run(made, settings, verbose=common.verbose).execute()
        except Exception as error:  # what was seen until then is shown
            failure, made.end = error, End.FAILED
    shown = made.nodes()
    warnings: list[str | Caution] = [*loaded.warnings, *made.planned.cautions]
    problems = _problems(made, failure)
    if format_ is PreviewFormat.JSON:
        _print_json(pipeline, made, shown, problems, warnings)
    else:
        if events is not None:
            events.end(made.end)
        else:
            _print_tables(made, shown, failure)
        _show_problems(problems, warnings, common)
    return 0 if any(node.columns is not None and node.problem is None for node in shown) and failure is None else 1


def _read_pipeline(file: str | None, loaded: LoadedSettings) -> Path | PipelineText:
    if file != _STDIN:
        return pipeline_file(file, loaded)
    from streamling.errors import INVALID_YAML, UserError
    from streamling.spec.pipeline import PipelineText

    try:
        return PipelineText(sys.stdin.buffer.read().decode("utf-8-sig"), _STDIN_NAME)
    except UnicodeDecodeError as error:
        raise UserError(INVALID_YAML, "invalid YAML: standard input is not UTF-8 text", cause=error) from error


@contextmanager
def _stop_without_reader(output: TextIO) -> Iterator[None]:
    """End the run when the reader of the output is gone: the preview server, or `head`. Writing would not tell,
    because there may be no rows."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_READER_CHECK_S):
            if is_closed(output):
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=watch, name="reader of output", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _waiting(pipeline: Path | PipelineText, common: Common) -> AbstractContextManager[object]:
    """A line on the terminal while Java starts and rows are read."""
    from streamling.cli.terminal import can_draw

    if not can_draw(sys.stderr) or common.quiet or common.verbose:
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(f"reading {pipeline.name}", spinner_style="dim")


def _problems(made: Preview, failure: Exception | None) -> list[Exception]:
    from streamling.errors import InvalidPipeline

    problems: list[Exception] = [*made.planned.problems, *made.failures.values()]
    if failure is not None:
        problems += failure.problems if isinstance(failure, InvalidPipeline) else (failure,)
    return list(dict.fromkeys(problems))


class _Events:
    """Prints rows while they arrive, a JSON object per line: first the nodes, then rows, then the end."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._lock = threading.Lock()

    def live(self) -> LiveRows:
        from streamling.engine.preview import LiveRows

        return LiveRows(self._start, self._emit, self._fail)

    def _start(self, nodes: Sequence[PlannedNode]) -> None:
        described = [{**_identity(node.spec), "columns": _columns(node.columns)} for node in nodes]
        self._print(_to_json({"event": "start", "nodes": described}))

    def _emit(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            self._print(_escape(sample.event()))

    def _fail(self, error: StreamlingError) -> None:
        from streamling.spec.mask import mask_text

        self._print(_to_json({"event": "problem", "node": error.node, "message": mask_text(error.message)}))

    def end(self, end: End) -> None:
        self._print(_to_json({"event": "end", "reason": end.name.lower()}))

    def _print(self, line: str) -> None:
        with self._lock, suppress(BrokenPipeError):  # nodes have threads of their own; without a reader the run ends
            print(line, file=self._output, flush=True)


def _print_tables(made: Preview, shown: list[NodePreview], failure: Exception | None) -> None:
    from streamling.cli.preview_table import preview_lines
    from streamling.cli.terminal import print_styled, size
    from streamling.engine.preview import End

    if not shown and made.end is End.INTERRUPTED and failure is None:
        print("interrupted before a node could be shown", file=sys.stderr)
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
    pipeline: Path | PipelineText,
    made: Preview,
    shown: list[NodePreview],
    problems: list[Exception],
    warnings: list[str | Caution],
) -> None:
    from streamling.cli.validate import problem_entry

    content = {
        "pipeline": str(pipeline),
        "end": made.end.name.lower(),
        "nodes": [_as_json(node) for node in shown],
        "problems": [problem_entry("error", problem) for problem in problems]
        + [problem_entry("warning", warning) for warning in warnings],
    }
    print(_to_json(content, indent=2))


def _to_json(content: object, indent: int | None = None) -> str:
    """JSON that every terminal shows as it is."""
    return _escape(json.dumps(content, indent=indent, ensure_ascii=False))


def _escape(text: str) -> str:
    unsafe = _UNSAFE if (sys.stdout.encoding or "").lower().startswith("utf") else _NOT_ASCII
    return unsafe.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _as_json(node: NodePreview) -> dict[str, Any]:
    from streamling.spec.mask import mask_text

    return {
        **_identity(node.spec),
        "columns": _columns(node.columns),
        "rows": list(node.rows),
        "rows_read": node.count,
        "rows_rejected": node.rejected,
        "problem": mask_text(node.problem) if node.problem else None,
        "note": node.note,
    }


def _identity(spec: NodeSpec) -> dict[str, str]:
    return {"name": spec.name, "role": spec.role.value, "type": spec.type}


def _columns(columns: Schema | None) -> list[dict[str, object]] | None:
    if columns is None:
        return None
    return [{"name": c.name, "type": str(c.type), "nullable": c.nullable} for c in columns]
