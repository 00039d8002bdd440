"""The pipelines that faults are tried on, and the rows they owe.

With SQL: a generator, a query, a processor that runs where the rows are, a Parquet sink, and a JSON sink behind another
query. Without SQL the same rows come from a source of its own and a processor: such a pipeline needs no Spark.
"""

from __future__ import annotations

from collections import Counter

from support.harness import Row, Workspace

_SQL = """\
sources:
  numbers:
    type: generator
    rows: {rows}
{rate}    primary_key: id
    columns:
      id: id
      name: concat('n-', id)
      bucket: id % 13
transforms:
  chosen:
    type: sql
    primary_key: id
    sql: >
      SELECT id, upper(name) AS name, bucket FROM numbers WHERE id % 4 <> 1
  sided: {{type: side, from: chosen}}
  again: {{type: sql, primary_key: id, sql: "SELECT id, name, side FROM sided"}}
"""
_PLAIN = """\
sources:
  numbers:
    type: counter
    rows: {rows}
{rate}    primary_key: id
transforms:
  sided: {{type: side, from: numbers}}
  again: {{type: side, from: sided}}
"""
_SINKS = """\
sinks:
  parquet: {{type: file, from: sided, path: parquet, format: parquet, batch_size: 20, batch_flush_interval: 200ms}}
  json: {{type: file, from: again, path: json, format: json, batch_size: 20, batch_flush_interval: 200ms}}
"""
_SIDE = """\
import pyarrow as pa
import pyarrow.compute as pc

from streamling.plugin import TransformPlugin, register_transform


@register_transform("side")
class Side(TransformPlugin):
    stateless = True

    def output_schema(self):
        fields = [f for f in self.context.input_schema if f.name not in ("bucket", "side", "_gs_op")]
        return pa.schema([*fields, pa.field("side", pa.string()), pa.field("_gs_op", pa.string(), False)])

    def process_batch(self, batch):
        if "bucket" not in batch.schema.names:
            return batch
        side = pc.if_else(pc.less(batch.column("bucket"), 6), "low", "high")
        return pa.RecordBatch.from_arrays(
            [batch.column("id"), batch.column("name"), side, batch.column("_gs_op")], schema=self.output_schema()
        )
"""
_COUNTER = """\
import time

import pyarrow as pa
from pydantic import Field

from streamling.connector import Kind, Offer, Slice, Source, register
from streamling.plan import types as t
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import Keyed, SourceOptions

COLUMNS = t.Schema(
    (
        t.Field("id", t.INT64, nullable=False),
        t.Field("name", t.STRING),
        t.Field("bucket", t.INT64),
        t.Field("_gs_op", t.STRING, nullable=False),
    )
)


class CounterOptions(Keyed, SourceOptions):
    rows: int = Field(description="How many.")
    rate: int | None = Field(default=None, description="Per second.")

    def output_schema(self, node):
        return COLUMNS


class CounterReader:
    def read(self, part):
        ids = [n for n in range(*part) if n % 4 != 1]
        names, buckets = [f"N-{n}" for n in ids], [n % 13 for n in ids]
        yield pa.RecordBatch.from_pydict({"id": ids, "name": names, "bucket": buckets, "_gs_op": ["i"] * len(ids)})


class Counter(Source):
    columns = COLUMNS

    def __init__(self, node, options):
        self._node, self._options = node.ref, options
        self._key = f"{node.ref}:counter"
        self._stored, self._began = None, 0.0

    @property
    def _next(self):
        return self._stored["next"] if self._stored else 0

    def open(self, positions):
        self._stored = positions.get(self._key)
        self._first, self._began = self._next, time.monotonic()

    def offer(self, room):
        end = min(self._options.rows, self._next + room.rows)
        if self._options.rate:
            end = min(end, self._first + int((time.monotonic() - self._began) * self._options.rate))
        if end <= self._next:
            return None
        slice_ = Slice(self._node, self._key, self._stored, {"next": end}, ([self._next, end],), end - self._next)
        self._stored = slice_.end
        return Offer((slice_,))

    @property
    def ended(self):
        return self._next >= self._options.rows

    @property
    def bounded(self):
        return True

    def reader(self):
        return CounterReader()


register(Kind(Role.SOURCE, "counter", CounterOptions, lambda node, settings: Counter(node, node.options)))
"""
FORMATS = ("parquet", "json")


def write(place: Workspace, rows: int, *, rate: int | None = None, sql: bool = True) -> None:
    """Put the pipeline down; with a rate it lasts, without one it ends as soon as it can."""
    text, plugin = (_SQL, _SIDE) if sql else (_PLAIN, _COUNTER + _SIDE)
    place.write((text + _SINKS).format(rows=rows, rate=f"    rate: {rate}\n" if rate else ""), plugin=plugin)


def model(rows: int) -> list[Row]:
    return [
        {"id": i, "name": f"N-{i}", "side": "low" if i % 13 < 6 else "high", "_gs_op": "i"}
        for i in range(rows)
        if i % 4 != 1
    ]


def differences(place: Workspace, rows: int, *, times: int = 1) -> list[str]:
    """One line per sink that does not hold every row of the model exactly so many times."""
    lines = []
    for format_ in FORMATS:
        owed = Counter({_frozen(row): times for row in model(rows)})
        held = Counter(_frozen(row) for row in place.rows(format_, format_))
        missing, doubled = owed - held, held - owed
        if missing or doubled:
            lines.append(f"{format_}: {_described('missing', missing)}; {_described('too many', doubled)}")
    return lines


def assert_exact(place: Workspace, rows: int, *, times: int = 1) -> None:
    assert differences(place, rows, times=times) == []


def assert_some_missing_none_doubled(place: Workspace, rows: int, when: str) -> None:
    held = [[id_ for table in place.tables(f, f) for id_ in table["id"].to_pylist()] for f in FORMATS]
    assert [len(ids) - len(set(ids)) for ids in held] == [0, 0], when
    assert min(len(ids) for ids in held) < rows * 3 // 4, when


def _frozen(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("id", "name", "side", "_gs_op"))


def _described(what: str, rows: Counter[tuple[object, ...]]) -> str:
    ids = sorted(str(row[0]) for row in rows)
    return f"{rows.total()} {what}" + (f" ({ids[0]} .. {ids[-1]})" if ids else "")
