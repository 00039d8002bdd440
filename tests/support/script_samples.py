"""Scripts in a sandbox, without an engine around it: rows in, rows out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamling.connector import BadRow, Counted, Epoch
from streamling.formats.arrow import arrow_schema
from streamling.plan.types import INT64, OPERATION_COLUMN, OPERATION_FIELD, STRING, U256, DataType, Field, Schema
from streamling.plan.written_types import declared_type
from streamling.transforms.script.program import read_program
from streamling.transforms.script.transform import ScriptProcessor

NOW_US = 1_700_000_000_123_456


def epoch(number: int = 1, seed: int = 42) -> Epoch:
    return Epoch(f"e{number}", number, "app", "g", NOW_US, seed, ())


def schema_of(columns: dict[str, str | DataType]) -> Schema:
    fields = (Field(name, _type(t) if isinstance(t, str) else t) for name, t in columns.items())
    return Schema((*(f for f in fields if f.name != OPERATION_COLUMN), OPERATION_FIELD))


def _type(text: str) -> DataType:
    return U256 if text == "u256" else declared_type(text)


def table_of(schema: Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    full = [{OPERATION_COLUMN: "i", **row} for row in rows]
    return pa.RecordBatch.from_pylist(full, schema=arrow_schema(schema))


class Script:
    """A script with its own sandbox. Rows are those of `columns`, results those of `schema` or of `columns`."""

    def __init__(
        self,
        script: str,
        columns: dict[str, str | DataType] | None = None,
        schema: dict[str, str | DataType] | None = None,
        *,
        language: str = "js",
        fails: bool = False,
        batch_size: int | None = None,
    ) -> None:
        default: dict[str, str | DataType] = {"id": INT64, "name": STRING}
        self.input = schema_of(columns or default)
        self.output = schema_of(schema) if schema else self.input
        self.processor = ScriptProcessor(
            read_program(script, language),
            "node_1",
            "shaped",
            self.input,
            self.output,
            schema is not None,
            fails,
            batch_size,
            None,
            str(id(self)),
        )

    def run(self, rows: list[dict[str, Any]], at: Epoch | None = None) -> list[dict[str, Any]]:
        """The rows it returns; raises if there are bad ones."""
        good, bad, _ = self.outcome(rows, at)
        assert bad == []
        return good

    def outcome(
        self, rows: list[dict[str, Any]], at: Epoch | None = None
    ) -> tuple[list[dict[str, Any]], list[BadRow], dict[str, int]]:
        return self.outcome_of(iter([table_of(self.input, rows)]), at)

    def outcome_of(
        self, batches: Any, at: Epoch | None = None
    ) -> tuple[list[dict[str, Any]], list[BadRow], dict[str, int]]:
        good: list[dict[str, Any]] = []
        bad: list[BadRow] = []
        counts: dict[str, int] = {}
        for item in self.processor.process(at or epoch(), batches):
            if isinstance(item, BadRow):
                bad.append(item)
            elif isinstance(item, Counted):
                counts[item.what] = counts.get(item.what, 0) + item.count
            else:
                assert item.schema.equals(arrow_schema(self.output))
                good += item.to_pylist()
        return good, bad, counts


def cast(value: str, type_: str) -> Any:
    """What a JavaScript expression becomes in a column of a type; the message if its row is bad."""
    good, bad, _ = Script(f"() => ({{v: {value}}})", {"id": INT64}, {"v": type_}).outcome([{"id": 1}])
    return bad[0].message if bad else good[0]["v"]
