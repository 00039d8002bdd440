"""The transform and its processor: a program is loaded once per process and node, when the first rows come."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
from streamling.errors import PYTHON_UNUSABLE, UserError
from streamling.plan.types import Schema
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError
from streamling.telemetry.labels import node_labels
from streamling.telemetry.metrics import Metrics
from streamling.transforms.line_limit import LineLimit
from streamling.transforms.python.loading import LoadedProgram, load_program
from streamling.transforms.python.printing import Printer
from streamling.transforms.python.program import CodeFault, Program

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.transforms.python import PythonOptions
    from streamling.transforms.python.calls import BatchCalls, Outcome, RowCalls

log = logging.getLogger(__name__)

# What a processor tells its transform, as JSON in the name of a count: one of these words, and a text.
_PRINTED, _LEFT_OUT, _NEW_KEY, _NULLED = "printed", "left out", "new key", "nulled"
# Names in a warning.
_MOST_NAMES = 10
NULLED_METRIC = "python_coercion_nulls"


class PythonTransform(Transform):
    """The control side."""

    def __init__(self, node: NodeSpec, options: PythonOptions) -> None:
        self._node = node
        self._options = options
        self.capabilities = TransformCapabilities(Placement.ANY, deterministic=options.deterministic)
        self._processor: PythonProcessor | None = None
        self._metrics = Metrics()
        self._labels: dict[str, str] = {}
        self._keys_told = False
        self._lines = LineLimit(self._log_line)

    def attach(self, runtime: Runtime) -> None:
        self._metrics, self._labels = runtime.metrics, node_labels(self._node)

    def open(self, context: TransformContext) -> None:
        options = self._options
        try:
            self._processor = PythonProcessor(
                self._node.name,
                options.program(self._node),
                context.input_schema,
                context.schema,
                options.by_batch,
                options.on_error,
                options.batch_size,
            )
            self._processor.loaded().printer.write_to(self._lines)  # here, so that errors come before the first row
        except CodeFault as fault:
            raise options.refusal(self._node, fault) from fault

    def processor(self) -> Processor:
        if self._processor is None:
            raise AssertionError("not opened")
        return self._processor

    def count(self, counts: Mapping[str, int]) -> None:
        new: set[str] = set()
        for name, count in counts.items():
            what, text = json.loads(name)
            if what == _PRINTED:
                self._lines.add(text, times=count)
            elif what == _LEFT_OUT:
                self._lines.leave_out(count)
            elif what == _NEW_KEY:
                new.add(text)
            else:
                self._metrics.count(NULLED_METRIC, count, self._labels)
        self._warn_of_keys(new)

    def _warn_of_keys(self, new: set[str]) -> None:
        if new and not self._keys_told:
            self._keys_told = True
            names = ", ".join(f"'{name}'" for name in sorted(new)[:_MOST_NAMES])
            names += " and others" * (len(new) > _MOST_NAMES)
            what = f"its function returns {names}, which the columns do not include; declare new ones in 'schema'"
            log.warning("%s: %s", self._node.described(), what)

    def _log_line(self, line: str, level: int) -> None:
        log.log(level, "%s: %s", self._node.described(), line)

    def close(self) -> None:
        self._lines.tell()
        if self._processor is not None:
            self._processor.end()


@dataclass(frozen=True, slots=True)
class LoadedNode:
    """The program of a node in one process."""

    program: LoadedProgram
    printer: Printer
    calls: RowCalls | BatchCalls
    lock: threading.Lock


@dataclass(frozen=True, slots=True)
class PythonProcessor:
    node: str
    program: Program
    input_schema: Schema
    schema: Schema
    by_batch: bool
    on_error: OnError
    batch_rows: int | None

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        from streamling.formats.arrow import rebatch

        try:
            own = self.loaded()
        except CodeFault as fault:  # in a worker: a module that only the driver has, for example
            raise UserError(PYTHON_UNUSABLE, f"in a worker: {fault.message}", node=self.node) from fault
        for batch in rebatch(batches, self.batch_rows):
            outcomes = own.calls.run(batch)
            while True:
                with own.lock:  # globals of a program are not prepared for threads
                    outcome, printed = next(outcomes, None), own.printer.take()
                if outcome is None:
                    break
                yield from _items(outcome, printed)

    def loaded(self) -> LoadedNode:
        """The program in this process, loaded with the first call. Raises CodeFault."""
        with _lock:
            loaded = _loaded.get(self)
            if loaded is None:
                loaded = _loaded[self] = self._load()
            return loaded

    def _load(self) -> LoadedNode:
        from streamling.transforms.python.calls import BatchCalls, RowCalls

        printer = Printer()
        program = load_program(self.program, printer.print)
        calls: RowCalls | BatchCalls
        if self.by_batch:
            search = self.on_error is not OnError.FAIL
            calls = BatchCalls(program, self.input_schema, self.schema, self.node, search=search)
        else:
            calls = RowCalls(program, self.input_schema, self.schema)
        return LoadedNode(program, printer, calls, threading.Lock())

    def end(self) -> None:
        """Forget the program in this process."""
        with _lock:
            loaded = _loaded.pop(self, None)
        if loaded is not None:
            loaded.program.unload()


def _items(outcome: Outcome, printed: tuple[Iterable[str], int]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
    lines, left_out = printed
    for line in lines:
        yield Counted(json.dumps([_PRINTED, line]), 1)
    if left_out:
        yield Counted(json.dumps([_LEFT_OUT, ""]), left_out)
    for key in sorted(outcome.new_keys):
        yield Counted(json.dumps([_NEW_KEY, key]), 1)
    if outcome.nulled:
        yield Counted(json.dumps([_NULLED, ""]), outcome.nulled)
    yield from outcome.bad
    yield from outcome.batches


_loaded: dict[PythonProcessor, LoadedNode] = {}
_lock = threading.Lock()
