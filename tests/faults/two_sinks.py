"""The pipeline that all faults are tried on, and the rows it must deliver.

A generator, a query, a processor that runs where the rows are, a Parquet sink, and a JSON sink behind another query.
"""

from __future__ import annotations

from collections import Counter

from harness import Row, Workspace

_PIPELINE = """\
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
sinks:
  parquet: {{type: file, from: sided, path: parquet, format: parquet, batch_size: 20, batch_flush_interval: 200ms}}
  json: {{type: file, from: again, path: json, format: json, batch_size: 20, batch_flush_interval: 200ms}}
"""
_PLUGIN = """\
import pyarrow as pa
import pyarrow.compute as pc

from streamling.plugin import TransformPlugin, register_transform


@register_transform("side")
class Side(TransformPlugin):
    stateless = True

    def output_schema(self):
        fields = [f for f in self.context.input_schema if f.name not in ("bucket", "_gs_op")]
        return pa.schema([*fields, pa.field("side", pa.string()), pa.field("_gs_op", pa.string(), False)])

    def process_batch(self, batch):
        side = pc.if_else(pc.less(batch.column("bucket"), 6), "low", "high")
        return pa.RecordBatch.from_arrays(
            [batch.column("id"), batch.column("name"), side, batch.column("_gs_op")], schema=self.output_schema()
        )
"""
FORMATS = ("parquet", "json")


def write(place: Workspace, rows: int, *, rate: int | None = None) -> None:
    """Write the pipeline file; with a rate the run lasts, without one it ends as soon as it can."""
    place.write(_PIPELINE.format(rows=rows, rate=f"    rate: {rate}\n" if rate else ""), plugin=_PLUGIN)


def model(rows: int) -> list[Row]:
    return [
        {"id": i, "name": f"N-{i}", "side": "low" if i % 13 < 6 else "high", "_gs_op": "i"}
        for i in range(rows)
        if i % 4 != 1
    ]


def differences(place: Workspace, rows: int, *, times: int = 1) -> list[str]:
    """One line per sink that does not hold every row of the model exactly so many times."""
    problems = []
    for format_ in FORMATS:
        owed = Counter({_frozen(row): times for row in model(rows)})
        held = Counter(_frozen(row) for row in place.rows(format_, format_))
        missing, doubled = owed - held, held - owed
        if missing or doubled:
            problems.append(f"{format_}: {_describe('missing', missing)}; {_describe('too many', doubled)}")
    return problems


def assert_exact(place: Workspace, rows: int, *, times: int = 1) -> None:
    assert differences(place, rows, times=times) == []


def assert_some_missing_none_doubled(place: Workspace, rows: int, when: str) -> None:
    held = [[id_ for table in place.tables(f, f) for id_ in table["id"].to_pylist()] for f in FORMATS]
    assert [len(ids) - len(set(ids)) for ids in held] == [0, 0], when
    assert min(len(ids) for ids in held) < rows * 3 // 4, when


def _frozen(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("id", "name", "side", "_gs_op"))


def _describe(what: str, rows: Counter[tuple[object, ...]]) -> str:
    ids = sorted(str(row[0]) for row in rows)
    return f"{rows.total()} {what}" + (f" ({ids[0]} .. {ids[-1]})" if ids else "")
