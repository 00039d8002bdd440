"""The pipeline all faults are tried on: a generator, a query, a Parquet and a JSON sink; and the rows it owes."""

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
      SELECT id, upper(name) AS name, case when bucket < 6 then 'low' else 'high' end AS side
      FROM numbers WHERE id % 4 <> 1
sinks:
  parquet: {{type: file, from: chosen, path: parquet, format: parquet, batch_size: 20, batch_flush_interval: 200ms}}
  json: {{type: file, from: chosen, path: json, format: json, batch_size: 20, batch_flush_interval: 200ms}}
"""
FORMATS = ("parquet", "json")


def write(place: Workspace, rows: int, *, rate: int | None = None) -> None:
    """Put the pipeline down; with a rate it lasts, without one it ends as soon as it can."""
    place.write(_PIPELINE.format(rows=rows, rate=f"    rate: {rate}\n" if rate else ""))


def model(rows: int) -> list[Row]:
    return [
        {"id": i, "name": f"N-{i}", "side": "low" if i % 13 < 6 else "high", "_gs_op": "i"}
        for i in range(rows)
        if i % 4 != 1
    ]


def differences(place: Workspace, rows: int, *, times: int = 1) -> list[str]:
    """One line per sink that does not hold every row of the model exactly so many times."""
    found = []
    for format_ in FORMATS:
        owed = Counter({_frozen(row): times for row in model(rows)})
        held = Counter(_frozen(row) for row in place.rows(format_, format_))
        missing, doubled = owed - held, held - owed
        if missing or doubled:
            found.append(f"{format_}: {_told('missing', missing)}; {_told('too many', doubled)}")
    return found


def assert_exact(place: Workspace, rows: int, *, times: int = 1) -> None:
    assert differences(place, rows, times=times) == []


def assert_some_missing_none_doubled(place: Workspace, rows: int, when: str) -> None:
    held = [[id_ for table in place.tables(f, f) for id_ in table["id"].to_pylist()] for f in FORMATS]
    assert [len(ids) - len(set(ids)) for ids in held] == [0, 0], when
    assert min(len(ids) for ids in held) < rows * 3 // 4, when


def _frozen(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("id", "name", "side", "_gs_op"))


def _told(what: str, rows: Counter[tuple[object, ...]]) -> str:
    ids = sorted(str(row[0]) for row in rows)
    return f"{rows.total()} {what}" + (f" ({ids[0]} .. {ids[-1]})" if ids else "")
