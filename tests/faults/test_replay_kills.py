"""A replay of dead letters that is killed at any point and started again delivers each letter once, also into a table
without a key."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from streamling.testing.crash import VARIABLE
from support.crash_places import all_places, places_at
from support.harness import Workspace
from support.postgres_server import Database, PostgresServer

pytestmark = [pytest.mark.faults, pytest.mark.servers]

SOURCE = """\
sources:
  lines:
    type: file
    path: in
    format: csv
    mode: {{type: bounded}}
    schema: {{id: int64, n: {type}}}
    {letters}
sinks:
"""
LETTERS = "on_error: dead_letter\n    dead_letter: {type: file, path: letters}"
TABLE = "  audit: {type: postgres, from: lines, schema: public, table: audit}\n"
FILES = "  files: {type: file, from: lines, path: out, format: json}\n"
NOTHING = "  audit: {type: blackhole, from: lines}\n"
SMALL = {"EPOCH__ROWS": 5}


def letters(place: Workspace, status: str) -> list[dict[str, Any]]:
    listed = place.run("dlq", "list", "--status", status, "--format", "json", cold=True).succeeded().stdout
    return [json.loads(line) for line in listed.splitlines()]


def put_down(place: Workspace, rows: dict[int, bytes]) -> None:
    (place.directory / "in").mkdir()
    content = b"".join(b"%d,%s\n" % (id_, value) for id_, value in rows.items())
    (place.directory / "in" / "a.csv").write_bytes(b"id,n\n" + content)


def kill_at(place: Workspace, points: Sequence[str], settings: dict[str, object]) -> None:
    for number, point in enumerate(points):
        crash = {VARIABLE: f"{point}@{1 + number % 2}"}
        killed = place.start("dlq", "replay", "--all", environment=crash, spark=False, **SMALL, **settings).wait()
        assert killed.code == -signal.SIGKILL, f"{point}\n{killed.stderr}"


def ids(database: Database) -> list[int]:
    return [id_ for (id_,) in database.rows("SELECT id FROM audit ORDER BY id")]


def state(place: Workspace) -> dict[str, str]:
    with closing(sqlite3.connect(place.directory / "state.db")) as connection:
        return dict(connection.execute("SELECT key, data FROM state"))


def positions(place: Workspace) -> dict[str, str]:
    return {key: value for key, value in state(place).items() if not key.startswith("__")}


def test_letters_of_a_source_arrive_once_in_every_sink(place: Workspace, postgres: PostgresServer) -> None:
    """Three of them cannot be decoded the second time either."""
    database = postgres.database()
    hopeless = {20, 21, 70}
    put_down(place, {id_: b"\xff" if id_ in hopeless else b"v%d" % id_ for id_ in range(120)})
    place.write(SOURCE.format(type="int64", letters=LETTERS) + NOTHING)
    place.start(spark=False).wait().succeeded()
    before = positions(place)
    assert len(letters(place, "open")) == 120

    place.write(SOURCE.format(type="string", letters=LETTERS) + TABLE + FILES)
    kill_at(place, all_places(("audit", "files")), database.settings())
    last = place.start("dlq", "replay", "--all", spark=False, **SMALL, **database.settings()).wait()
    assert last.code == 1
    assert "3 letters failed again, still open" in last.stderr
    good = [id_ for id_ in range(120) if id_ not in hopeless]
    assert ids(database) == good
    assert sorted(row["id"] for row in place.rows("out", "json")) == good
    assert sorted(letter["source"]["row"] - 1 for letter in letters(place, "open")) == sorted(hopeless)
    assert len(letters(place, "replayed")) == 117
    assert positions(place) == before
    assert not [key for key in state(place) if key.startswith("__pending")]


def test_letters_of_a_sink_arrive_once_and_those_it_rejects_again_stay_open(
    place: Workspace, postgres: PostgresServer
) -> None:
    database = postgres.database()
    database.execute("CREATE TABLE audit (id bigint, n bigint, CONSTRAINT none CHECK (id < 0))")
    put_down(place, dict.fromkeys(range(80), b"1"))
    table = TABLE.replace("table: audit", f"table: audit, {LETTERS.replace(chr(10), ',')}")
    place.write(SOURCE.format(type="int64", letters="") + table)
    place.start(spark=False, **database.settings()).wait().succeeded()
    assert len(letters(place, "open")) == 80

    database.execute("ALTER TABLE audit DROP CONSTRAINT none, ADD CONSTRAINT tenth CHECK (mod(id, 10) <> 3)")
    kill_at(place, (*places_at(("audit",)), "before-finalize"), database.settings())
    last = place.start("dlq", "replay", "--all", spark=False, **SMALL, **database.settings()).wait()
    assert last.code == 1
    assert ids(database) == [id_ for id_ in range(80) if id_ % 10 != 3]
    open_ = letters(place, "open")
    assert len(open_) == 8
    assert all("tenth" in letter["reason_text"] for letter in open_)
    database.execute("ALTER TABLE audit DROP CONSTRAINT tenth")
    place.start("dlq", "replay", "--all", spark=False, **database.settings()).wait().succeeded()
    assert ids(database) == list(range(80))
    assert letters(place, "open") == []
