"""A script in a sandbox: batches in, columns, bad rows and lines of the console out."""

from __future__ import annotations

import json
import secrets
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.connector import Epoch
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.transforms.script.casting import OUTPUT_BYTES, batch_program, crossing_fields
from streamling.transforms.script.incoming import Incoming, add_columns, number_values
from streamling.transforms.script.machine import MEMORY_BYTES, Machine, ScriptFault, Stopped
from streamling.transforms.script.modules import STACK_BYTES
from streamling.transforms.script.outgoing import Outgoing
from streamling.transforms.script.prelude import OUTPUT_LIMIT, PRELUDE
from streamling.transforms.script.program import START_SECONDS, Program, columns_read, load

CALL_SECONDS = 60.0
CALL_ROWS = 8192
"""Rows of a call, unless the node sets `batch_size`."""
CALL_BYTES = 4 << 20
"""Bytes of the rows of a call, unless a single row is larger."""
_LIMITS = {
    "time": f"the call took longer than {CALL_SECONDS:g} s",
    "memory": f"the script needs more than {MEMORY_BYTES >> 20} MB of memory",
    "output": f"the rows that the call returns are larger than {OUTPUT_BYTES >> 20} MB",
    "stack": f"the stack is larger than {STACK_BYTES >> 10} kB: a function calls itself too often",
    "crash": "the sandbox failed",
    "damage": "the script has replaced built-in objects that the sandbox needs",
}
_INSTANTS = ("timestamp", "duration", "time64", "time32")


class LimitExceeded(Exception):
    """A call was stopped. Its rows have no result, and the sandbox is a new one; `row` is the row at fault."""

    def __init__(self, limit: str, row: int) -> None:
        super().__init__(_LIMITS[limit])
        self.limit = limit
        self.row = row


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row for which the function threw an exception or returned a wrong value."""

    row: int
    message: str
    line: int | None
    trace: tuple[str, ...]


@dataclass(slots=True)
class Result:
    """What became of the rows of a call."""

    rows: pa.RecordBatch
    failed: list[FailedRow] = field(default_factory=list)
    coerced_nulls: int = 0
    lines: list[tuple[int, str]] = field(default_factory=list)
    """What the script has logged: whether it is a warning, and the text."""
    lost_lines: int = 0
    unknown_keys: tuple[str, ...] = ()
    """Keys that the function returned and that are not columns."""


class Sandbox:
    """Keeps one machine with the script loaded, and replaces it when a limit has stopped it."""

    def __init__(
        self,
        program: Program,
        input_: Schema,
        output: Schema,
        arrow: pa.Schema,
        *,
        declared: bool,
        stop_at_first: bool,
        image: Path | None = None,
    ) -> None:
        """
        arrow           the Arrow types of the output
        declared        whether the output is declared, so that other keys are dropped without a word
        stop_at_first   whether the rows after a failed one are of no interest
        """
        self._program = program
        self._input = input_
        self._output = output
        self._arrow = arrow
        self._declared = declared
        self._stop_at_first = stop_at_first
        self._image = image
        # The operation comes from the input, whatever the script returns.
        own_operation = OPERATION_COLUMN in input_
        self._written = Schema(tuple(f for f in output if not (own_operation and f.name == OPERATION_COLUMN)))
        self._loaded: _Loaded | None = None

    def prepare(self) -> None:
        """Load the script, if it is not loaded. Raises ScriptError and Stopped."""
        if self._loaded is None:
            self._loaded = _Loaded(
                self._program, self._input, self._written, declared=self._declared, image=self._image
            )

    def close(self) -> None:
        if self._loaded is not None:
            self._loaded.machine.close()
            self._loaded = None

    def run(self, batch: pa.RecordBatch, epoch: Epoch) -> Result:
        """Call the function for every row. Raises LimitExceeded and ScriptError."""
        self.prepare()
        if self._loaded is None:
            raise AssertionError("not loaded")
        try:
            return self._call(self._loaded, batch, epoch)
        except Stopped as stopped:
            row = self._loaded.current_row()
            self.close()
            raise LimitExceeded(stopped.limit, min(row, batch.num_rows - 1)) from stopped
        except ScriptFault as fault:
            row = self._loaded.current_row()
            self.close()
            limit = "output" if fault.message == OUTPUT_LIMIT else "damage"
            raise LimitExceeded(limit, min(row, batch.num_rows - 1)) from fault

    def _call(self, loaded: _Loaded, batch: pa.RecordBatch, epoch: Epoch) -> Result:
        incoming = Incoming()
        add_columns(incoming, batch, loaded.fields)
        machine = loaded.machine
        machine.set_clock(epoch.now_us)
        size, pieces, buffer, places = incoming.layout(batch.num_rows, stop=self._stop_at_first, seed=epoch.seed)
        machine.stage(size, pieces)
        arguments = [machine.new_buffer(0, buffer), *(machine.new_text(*place) for place in places)]
        data = machine.take_buffer(machine.apply(loaded.batch, arguments, CALL_SECONDS))
        text = machine.take_text(machine.member(loaded.out, "text"))
        outgoing = Outgoing(self._written, data, text, loaded.text_lengths)
        columns = dict(zip(self._written.names, outgoing.columns(self._written), strict=True))
        if self._program.may_wait:
            machine.run_jobs(CALL_SECONDS)
        self._keep_instants(columns, batch, outgoing.sources)
        self._set_operation(columns, batch, outgoing.sources)
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self._output.names], schema=self._arrow)
        result = Result(rows, coerced_nulls=outgoing.coerced_nulls)
        if outgoing.has_extra:
            self._add_extra(result, json.loads(machine.take_text(machine.member(loaded.out, "extra"))))
        return result

    def _add_extra(self, result: Result, extra: Any) -> None:
        for row, name, message, stack in extra["errors"]:
            text = f"{name}: {message}" if name else message
            line, trace = self._program.place(stack, message), self._program.trace(stack, message)
            result.failed.append(FailedRow(row, text, line, tuple(trace)))
        result.lines = [(level, text) for level, text in extra["lines"]]
        result.lost_lines = extra["lost"]
        result.unknown_keys = tuple(extra["extras"])

    def _keep_instants(
        self, columns: dict[str, pa.Array], batch: pa.RecordBatch, sources: np.ndarray[Any, Any]
    ) -> None:
        """A double has no room for the microseconds of times far away: a value that the script has returned as it was
        stays as it was."""
        for column in self._written:
            before = self._input.get(column.name)
            if before is None or before.type != column.type or column.type.kind not in _INSTANTS:
                continue
            original = batch.column(column.name).take(pa.array(sources))
            seen, _ = number_values(original, column.type)
            # As the prelude takes a number apart.
            milliseconds = np.floor(seen)
            unchanged = milliseconds.astype(np.int64) * 1000
            unchanged += np.floor((seen - milliseconds) * 1000 + 0.5).astype(np.int64)
            same = pc.equal(columns[column.name].cast(pa.int64()), pa.array(unchanged))
            same = pc.and_(pc.fill_null(same, False), original.is_valid())
            columns[column.name] = pc.if_else(same, original, columns[column.name])

    def _set_operation(
        self, columns: dict[str, pa.Array], batch: pa.RecordBatch, sources: np.ndarray[Any, Any]
    ) -> None:
        if OPERATION_COLUMN in self._input:
            columns[OPERATION_COLUMN] = batch.column(OPERATION_COLUMN).take(pa.array(sources))
        else:
            columns[OPERATION_COLUMN] = pc.fill_null(columns[OPERATION_COLUMN], "i")


class _Loaded:
    """A machine with the script in it."""

    def __init__(
        self, program: Program, input_: Schema, written: Schema, *, declared: bool, image: Path | None
    ) -> None:
        self.machine = machine = Machine(image)
        mark = secrets.token_bytes(16)
        machine.stage(16, [(0, mark)])
        state = machine.new_buffer(0, 16)
        view = machine.apply(machine.evaluate("(b => new Int32Array(b))", START_SECONDS), [state], START_SECONDS)
        prelude = machine.evaluate(PRELUDE, START_SECONDS)
        tools = machine.apply(prelude, [view], START_SECONDS)
        names = machine.evaluate("Object.getOwnPropertyNames(globalThis).join()", START_SECONDS)
        known = machine.take_text(names).decode().split(",")
        function = load(machine, program, known)
        text = machine.evaluate("(f => Function.prototype.toString.call(f))", START_SECONDS)
        shown = machine.take_text(machine.apply(text, [machine.copy(function)], START_SECONDS)).decode()
        self.fields = crossing_fields(input_, columns_read(program, shown, input_.names))
        code = batch_program(
            input_,
            written,
            columns=[f.name for f in self.fields],
            strict_keys=not declared,
            may_wait=program.may_wait,
        )
        made = machine.apply(machine.evaluate(code, START_SECONDS), [tools, function], START_SECONDS)
        self.batch = machine.member(made, "batch")
        self.out = machine.member(made, "out")
        self._lengths = machine.member(made, "lengths")
        self._state = self._find_state(mark)

    def text_lengths(self) -> bytes:
        return self.machine.take_buffer(self.machine.apply(self._lengths, [], START_SECONDS))

    def current_row(self) -> int:
        """The row that the script was called with last, also after it was stopped."""
        if self._state is None:
            return 0
        (row,) = struct.unpack("<i", self.machine.peek(self._state, 4))
        return max(0, int(row))

    def _find_state(self, mark: bytes) -> int | None:
        """The address of the counter of rows. The prelude has changed the end of the mark; copies of it have not."""
        places = self.machine.find(mark[:12] + bytes(byte ^ 0xFF for byte in mark[12:]))
        return places[0] if len(places) == 1 else None
