"""The processor of a script, and its control side in the driver."""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamling.connector import (
    BadRow,
    Counted,
    Epoch,
    Placement,
    Processor,
    Runtime,
    Transform,
    TransformCapabilities,
    TransformContext,
)
from streamling.errors import DATA_ERROR, INVALID_VALUE, SCRIPT_FAILED, SCRIPT_LIMIT, UserError
from streamling.plan.types import Schema
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError
from streamling.telemetry.labels import node_labels
from streamling.telemetry.metrics import Metrics
from streamling.transforms.line_limit import LineLimit
from streamling.transforms.script.program import Program, ScriptError, read_program

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.transforms.script import ScriptOptions
    from streamling.transforms.script.sandbox import LimitExceeded, Result, Sandbox

log = logging.getLogger(__name__)
_REASON = "script_error"
_SHOWN_ROW = 1000
_MAX_SANDBOXES = 16
# What a processor tells its control side besides rows: the names of counts.
_NULLS, _KEY, _LINE, _LOST = "nulls", "key ", "line ", "lost"


class ScriptTransform(Transform):
    """Compiles the script once, and shows what the processors report."""

    # Time and random numbers come from the epoch; what a script keeps in globals is documented as not repeatable.
    capabilities = TransformCapabilities(Placement.ANY, deterministic=True)

    def __init__(self, node: NodeSpec, options: ScriptOptions, image: str | None) -> None:
        self._node = node
        self._options = options
        self._image = image
        self._processor: ScriptProcessor | None = None
        self._metrics = Metrics()
        self._lines = LineLimit(self._log_line)
        self._warned: set[str] = set()

    def attach(self, runtime: Runtime) -> None:
        self._metrics = runtime.metrics

    def open(self, context: TransformContext) -> None:
        from streamling.transforms.script.machine import Stopped
        from streamling.transforms.script.modules import BrokenImage

        if self._image is not None and not Path(self._image).is_file():
            message = f"wasm_script.runtime_wasm_file_path: there is no file {self._image}"
            raise UserError(INVALID_VALUE, message, node=self._node.name)
        try:
            program = read_program(self._options.script, self._options.language)
            self._processor = ScriptProcessor(
                program,
                context.node,
                self._node.name,
                context.input_schema,
                context.schema,
                self._options.schema_ is not None,
                self._options.on_error is OnError.FAIL,
                self._options.batch_size,
                self._image,
                secrets.token_hex(8),
            )
            self._processor.sandbox().prepare()
        except (ScriptError, Stopped) as error:
            raise self._options.problem(self._node, error) from error
        except BrokenImage as error:
            message = f"wasm_script.runtime_wasm_file_path: {self._image} is not a sandbox for scripts: {error}"
            raise UserError(INVALID_VALUE, message, node=self._node.name) from error

    def processor(self) -> Processor:
        if self._processor is None:
            raise AssertionError("not opened")
        return self._processor

    def count(self, counts: Mapping[str, int]) -> None:
        for what, count in counts.items():
            if what == _NULLS:
                self._metrics.count("script_coercion_nulls", count, node_labels(self._node))
            elif what.startswith(_LINE):
                level, text = json.loads(what.removeprefix(_LINE))
                self._lines.add(text, logging.WARNING if level else logging.INFO, count)
            elif what == _LOST:
                self._lines.leave_out(count)
        self._warn([what.removeprefix(_KEY) for what in counts if what.startswith(_KEY)])

    def _warn(self, keys: list[str]) -> None:
        fresh = sorted(set(keys) - self._warned)
        if not fresh or self._warned:
            return
        self._warned.update(fresh)
        names = ", ".join(f"'{key}'" for key in fresh)
        log.warning(
            "%s: the script returns %s, which the input does not have: dropped; declare all columns in `schema`",
            self._node.described(),
            names,
        )

    def _log_line(self, line: str, level: int) -> None:
        log.log(level, "%s: %s", self._node.described(), line)

    def close(self) -> None:
        self._lines.tell()
        if self._processor is not None:
            self._processor.end()


@dataclass(frozen=True, slots=True)
class ScriptProcessor:
    program: Program
    node: str
    name: str
    input_schema: Schema
    schema: Schema
    declared: bool
    stop_at_first: bool
    batch_rows: int | None
    image: str | None
    run: str
    """Sandboxes are kept for one run: its globals must not be seen by the next."""

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        from streamling.transforms.script.batches import calls

        for batch in calls(batches, self.batch_rows):
            yield from self._call(batch, epoch, 0)

    def _call(self, batch: pa.RecordBatch, epoch: Epoch, first: int) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        """The rows of one call; `first` is the number of rows of the batch before them."""
        from streamling.transforms.script.sandbox import LimitExceeded

        if batch.num_rows == 0:
            return
        own = self._own()
        with own.lock:  # tasks of an executor have processes of their own; the driver may have threads
            try:
                result = own.sandbox.run(batch, epoch)
            except LimitExceeded as limit:
                error = limit
            except ScriptError as failure:
                raise UserError(SCRIPT_FAILED, f"the script does not load: {failure}", node=self.name) from failure
            else:
                yield from self._items(batch, result, first)
                return
        if error.limit == "output" and batch.num_rows > 1:  # many rows that each return a little more than they get
            half = batch.num_rows // 2
            yield from self._call(batch.slice(0, half), epoch, first)
            yield from self._call(batch.slice(half), epoch, first + half)
            return
        if error.limit != "stack":
            raise self._limit(batch, error, first)
        # Too deep a recursion depends on the row: the others are processed, in a new sandbox.
        yield from self._call(batch.slice(0, error.row), epoch, first)
        yield self._bad_row(batch, error.row, f"script execution failed: {error}", first)
        yield from self._call(batch.slice(error.row + 1), epoch, first + error.row + 1)

    def _items(self, batch: pa.RecordBatch, result: Result, first: int) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        if result.failed and self.stop_at_first:
            for level, text in result.lines:  # the run ends here, so they would not be reported
                log.log(logging.WARNING if level else logging.INFO, "%s: %s", self.name, text)
        for failed in result.failed:
            where = f" in line {failed.line} of the script" if failed.line is not None else ""
            stack = f" ({' < '.join(failed.trace)})" if len(failed.trace) > 1 else ""
            yield self._bad_row(batch, failed.row, f"script execution failed{where}: {failed.message}{stack}", first)
        if result.coerced_nulls:
            yield Counted(_NULLS, result.coerced_nulls)
        for level, text in result.lines:
            yield Counted(_LINE + json.dumps([level, text]), 1)
        if result.lost_lines:
            yield Counted(_LOST, result.lost_lines)
        for key in dict.fromkeys(result.unknown_keys):
            yield Counted(_KEY + key, 1)
        if result.rows.num_rows:
            yield result.rows

    def _bad_row(self, batch: pa.RecordBatch, row: int, message: str, first: int) -> BadRow:
        """Raises UserError if the run ends with the first bad row."""
        from streamling.formats.json import json_row

        if self.stop_at_first:
            hint = "fix the script or the row, or set on_error to skip or dead_letter"
            raise UserError(DATA_ERROR, message + _shown(batch, row, first), node=self.name, hint=hint)
        return BadRow(_REASON, message, {}, row=json_row(batch, row))

    def _limit(self, batch: pa.RecordBatch, error: LimitExceeded, first: int) -> UserError:
        text = f"script execution failed: {error}{_shown(batch, error.row, first)}"
        return UserError(SCRIPT_LIMIT, text, node=self.name)

    def sandbox(self) -> Sandbox:
        return self._own().sandbox

    def _own(self) -> _Own:
        """The sandbox of this process."""
        with _lock:
            own = _sandboxes.pop(self, None) or _Own(self._make(), threading.Lock())
            _sandboxes[self] = own  # the last one is the one used last
            while len(_sandboxes) > _MAX_SANDBOXES:
                _sandboxes.pop(next(iter(_sandboxes)))
            return own

    def _make(self) -> Sandbox:
        from streamling.formats.arrow import arrow_schema
        from streamling.transforms.script.sandbox import Sandbox

        return Sandbox(
            self.program,
            self.input_schema,
            self.schema,
            arrow_schema(self.schema),
            declared=self.declared,
            stop_at_first=self.stop_at_first,
            image=Path(self.image) if self.image else None,
        )

    def end(self) -> None:
        """Close the sandbox of this process, if there is one."""
        with _lock:
            own = _sandboxes.pop(self, None)
        if own is not None:
            with own.lock:
                own.sandbox.close()


@dataclass(frozen=True, slots=True)
class _Own:
    sandbox: Sandbox
    lock: threading.Lock


_sandboxes: dict[ScriptProcessor, _Own] = {}
_lock = threading.Lock()


def _shown(batch: pa.RecordBatch, row: int, first: int) -> str:
    from streamling.formats.json import json_rows

    (text,) = json_rows(batch.slice(row, 1))
    return f"; row {first + row + 1} of its batch: {text if len(text) <= _SHOWN_ROW else text[:_SHOWN_ROW] + '...'}"
