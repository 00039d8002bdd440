"""A process that is killed around the moment at which it fills a dynamic table neither loses a row nor repeats one.

The table removes duplicates: a row whose own value were found there when its epoch is replayed would be lost.
"""

from __future__ import annotations

import json
import signal

import pytest

from streamling.testing.crash import VARIABLE
from support.harness import Workspace
from support.postgres_server import PostgresServer

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]

PIPELINE = """\
sources:
  events: {type: file, path: in, format: json, primary_key: id, mode: {type: bounded},
           schema: {id: int64, name: string}}
transforms:
  seen: {type: dynamic_table, backend_type: Postgres, backend_entity_name: seen, populate: after,
         sql: SELECT name FROM events}
  new: {type: sql, primary_key: id, sql: "SELECT id, name FROM events WHERE NOT dynamic_table_check('seen', name)"}
sinks:
  first: {type: file, from: new, path: first, format: parquet}
  second: {type: file, from: new, path: second, format: json}
"""
# One sink has the epoch; both have it, but the table lacks its values; the table has them, but positions did not move.
POINTS = ("after-commit:first@2", "after-commit:second@2", "before-finalize@2")
ROWS, NAMES, SMALL = 60, 25, {"EPOCH__ROWS": 6}


def test_a_replay_does_not_find_its_own_values(place: Workspace, postgres: PostgresServer) -> None:
    database = postgres.database()
    names = {"HOST": database.host, "PORT": database.port, "USER": database.user, "PASSWORD": database.password}
    named = {**names, "DB": database.name, "SSLMODE": "disable"}
    settings = {f"DYNAMIC_TABLE_BACKEND__POSTGRES__{name}": value for name, value in named.items()}
    rows = [{"id": n, "name": f"n{n * 7 % NAMES}"} for n in range(ROWS)]
    (place.directory / "in").mkdir()
    (place.directory / "in" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    place.write(PIPELINE)
    for point in POINTS:
        killed = place.start(environment={VARIABLE: point}, **SMALL, **settings).wait()
        assert killed.code == -signal.SIGKILL, f"{point}\n{killed.stderr}"
    place.run(**SMALL, **settings).succeeded()
    expected = [row["id"] for row in rows[:NAMES]]
    assert sorted(row["id"] for row in place.rows("first", "parquet")) == expected
    assert sorted(row["id"] for row in place.rows("second", "json")) == expected
    added = database.rows("SELECT value FROM streamling.seen")
    assert sorted(added) == sorted((f"n{n}",) for n in range(NAMES))
