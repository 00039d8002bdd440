"""Queries look values up in dynamic tables, and fill them, in epochs of the driver and of executors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.harness import Workspace
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.spark

SMALL, LARGE = {"EPOCH__ROWS": 3}, {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 4}
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
HEAD = """\
sources:
  events: {type: file, path: in, format: json, primary_key: id,
           schema: {id: int64, name: string, kind: string, tags: [string]}}
transforms:
"""
TAIL = """
sinks:
  out: {type: file, from: result, path: out, format: json}
"""


def write(place: Workspace, rows: list[dict[str, Any]], transforms: str, head: str = HEAD) -> None:
    (place.directory / "in").mkdir(exist_ok=True)
    (place.directory / "in" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    place.write(head + transforms + TAIL)


def connected(database: Database) -> dict[str, object]:
    names = {"HOST": database.host, "PORT": database.port, "USER": database.user, "PASSWORD": database.password}
    named = {**names, "DB": database.name, "SSLMODE": "disable"}
    return {f"DYNAMIC_TABLE_BACKEND__POSTGRES__{name}": value for name, value in named.items()}


def events(names: list[str | None], **more: list[Any]) -> list[dict[str, Any]]:
    return [{"id": n, "name": name, **{key: values[n] for key, values in more.items()}} for n, name in enumerate(names)]


FIRST_OF_EACH = """\
  seen: {type: dynamic_table, backend_type: InMemory, backend_entity_name: seen, populate: after,
         sql: "SELECT name FROM events WHERE kind = 'x'"}
  result: {type: sql, primary_key: id,
           sql: "SELECT id FROM events WHERE kind <> 'z' AND NOT dynamic_table_check('seen', name)"}
"""


@SIZES
def test_the_first_row_of_each_value_passes_whatever_the_epochs_are(
    place: Workspace, size: dict[str, object]
) -> None:
    """As if each row were an epoch of its own: row 0 does not add its value, row 9 comes after it was added."""
    names = ["a", "a", "a", "b", None, "b", "c", "c", "a", "d", "d", "c"]
    kinds = ["y", "x", "x", "x", "x", "x", "z", "x", "y", "x", "z", "x"]
    write(place, events(names, kind=kinds), FIRST_OF_EACH)
    place.run(**size).succeeded()
    assert [row["id"] for row in place.rows("out", "json")] == [0, 1, 3, 7, 9]
