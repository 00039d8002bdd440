"""A connector of a third party in a whole pipeline: the code and the pipeline of the guide, killed and restarted."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from support.doc_pages import ROOT, blocks_of, write_modules
from support.harness import Workspace

pytestmark = pytest.mark.spark

GUIDE = ROOT / "docs" / "connectors.md"
ROWS = 25_000
# One body is no text, one is too short for the query, one is refused by the target.
NOT_TEXT, SHORT, REFUSED = 30, 40, 12_345


def test_the_connectors_of_the_guide_deliver_once_from_executors_through_a_crash(place: Workspace) -> None:
    (pipeline,) = blocks_of(GUIDE, "yaml")
    place.write(pipeline.text)
    write_modules(GUIDE, place.directory / "connectors")
    with closing(sqlite3.connect(place.directory / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, body)")
        shop.executemany("INSERT INTO outbox VALUES (?, ?)", [(n, f"order {n}") for n in range(1, ROWS + 1)])
        shop.execute("UPDATE outbox SET body = x'00' WHERE id = ?", (NOT_TEXT,))
        shop.execute("UPDATE outbox SET body = 'ab' WHERE id = ?", (SHORT,))
    with closing(sqlite3.connect(place.directory / "copy.db")) as copy, copy:
        copy.execute(f"CREATE TABLE orders (id INTEGER CHECK (id <> {REFUSED}), body TEXT, _gs_op TEXT)")

    settings = {"PLUGIN__PATH": "connectors", "EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 10_000}
    crashed = place.run(environment={"STREAMLING_TEST_CRASH": "after-commit:copy@2"}, **settings)
    assert crashed.code == -9, crashed.stderr[-4000:]
    finished = place.run(**settings).succeeded()

    # The second epoch was committed and not finalized: its letter may still have been missing, its rows were not.
    assert "replaying it for: no sink, all have it" in finished.stderr
    with closing(sqlite3.connect(place.directory / "copy.db")) as copy:
        ids = [id_ for (id_,) in copy.execute("SELECT id FROM orders ORDER BY rowid")]
        assert copy.execute("SELECT body FROM orders WHERE id = 20").fetchone() == ("order **",)
    assert ids == [n for n in range(1, ROWS + 1) if n not in (NOT_TEXT, SHORT, REFUSED)]
    letters = [
        json.loads(line)
        for file in (place.directory / "dead-letters").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert [(letter["node"], letter["reason_code"], letter["row"]["id"]) for letter in letters] == [
        ("copy", "refused", REFUSED)
    ]
    assert place.state()["orders:outbox"] == ROWS + 1
