"""Versions of a lookup: their identity, their rows on disk, and what happens when a refresh fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from streamling.connector import Epoch, Lookup, kinds
from streamling.engine.data.lookups.snapshots import Snapshot, make_snapshot
from streamling.engine.data.lookups.store import SnapshotStore
from streamling.engine.data.lookups.tables import LookupTables
from streamling.engine.data.lookups.versions import LookupVersions
from streamling.errors import LOOKUP, PermanentError, TransientError
from streamling.plan.pipeline import make_plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import load_pipeline

PIPELINE = """\
sources:
  orders: {type: generator, rows: 3, primary_key: id}
transforms:
  names: {type: lookup, query: SELECT 1, primary_key: "id, kind", schema: {id: int64, kind: string, name: string}}
  joined: {type: sql, primary_key: id, sql: "SELECT o.id FROM orders o JOIN names n ON o.id = n.id AND n.kind = 'a'"}
sinks:
  out: {type: blackhole, from: joined}
"""


def table(*rows: tuple[int | None, str | None, str]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    schema = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("name", pa.string())])
    return pa.table([pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)], schema=schema)


def snapshot(*rows: tuple[int | None, str | None, str]) -> Snapshot:
    return make_snapshot("names", table(*rows), ("id", "kind"))


class Table(Lookup):
    """A lookup whose reads are given."""

    refresh_s = 0.01

    def __init__(self, read: Callable[[], pa.Table]) -> None:
        self.reading = read

    def read(self) -> pa.Table:
        return self.reading()


@pytest.fixture
def node() -> PlannedNode:
    (planned,) = make_plan(load_pipeline(PIPELINE, "p.yaml", kinds.kinds())).lookups
    return planned


def epoch(**lookups: str) -> Epoch:
    return Epoch("e", 7, "app", "g", 0, 0, (), lookups=lookups)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_version_is_the_content_whatever_its_order() -> None:
    one, other = snapshot((1, "a", "x"), (2, "a", "y")), snapshot((2, "a", "y"), (1, "a", "x"))
    assert one.version == other.version
    assert one.version != snapshot((1, "a", "x"), (2, "a", "z")).version
    assert snapshot().version


def test_rows_without_a_key_are_left_out_and_double_keys_are_refused() -> None:
    kept = snapshot((None, "a", "x"), (None, "a", "y"), (1, None, "z"), (1, "b", "v"), (1, "a", "w"))
    assert kept.table.to_pylist() == [{"id": 1, "kind": "a", "name": "w"}, {"id": 1, "kind": "b", "name": "v"}]
    with pytest.raises(PermanentError, match="two rows of the lookup have the key id = 2, kind = 'a'") as caught:
        snapshot((2, "a", "x"), (1, "a", "y"), (2, "b", "y"), (2, "a", "z"))
    assert caught.value.condition is LOOKUP


def test_a_small_epoch_gets_the_rows_with_its_keys() -> None:
    rows = make_snapshot("names", table(*((i, k, "n") for i in range(1000) for k in "ab")), ("id", "kind"))
    keys = pa.chunked_array([[5, 7, None, 5]])
    found = rows.restrict([{"id": keys, "kind": pa.chunked_array([["a"]])}, {"id": pa.chunked_array([[9]])}])
    assert [(row["id"], row["kind"]) for row in found.to_pylist()] == [(5, "a"), (7, "a"), (9, "a"), (9, "b")]


def test_stored_snapshots_are_intact_or_not_there(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    old, new = snapshot((1, "a", "x")), snapshot((1, "a", "y"))
    store.save("names", old)
    store.save("names", new)
    loaded = store.load("names", old.version, old.key)
    assert loaded is not None
    assert loaded.table == old.table
    assert store.load("names", "0" * 32, old.key) is None
    store.prune("names", {new.version})
    assert store.load("names", old.version, old.key) is not None, "it was stored just now"
    for path in (tmp_path / "names").iterdir():
        os.utime(path, (0, 0))
    store.prune("names", {new.version})
    assert [path.stem for path in (tmp_path / "names").iterdir()] == [new.version]
    path = tmp_path / "names" / f"{new.version}.arrow"
    path.write_bytes(path.read_bytes()[:-20])
    assert store.load("names", new.version, new.key) is None


def test_a_failed_refresh_keeps_the_rows_until_one_succeeds(
    node: PlannedNode, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = table((1, "a", "x")), table((1, "a", "y"))
    lookup = Table(lambda: first)
    versions = LookupVersions(node, lookup)
    versions.open()
    version = versions.current.version

    def fail() -> pa.Table:
        raise TransientError(LOOKUP, "the database is away")

    lookup.reading = fail
    versions.start()
    try:
        until(lambda: versions.trouble)
        assert versions.trouble == "the database is away"
        assert versions.current.version == version
        time.sleep(0.1)
        assert sum("not refreshed" in record.message for record in caplog.records) == 1
        lookup.reading = lambda: second
        until(lambda: versions.trouble is None)
        assert versions.current.table.column("name").to_pylist() == ["y"]
    finally:
        versions.close()


def test_a_database_that_is_still_starting_is_waited_for(node: PlannedNode) -> None:
    attempts: list[int] = []

    def read() -> pa.Table:
        attempts.append(1)
        if len(attempts) < 3:
            raise TransientError(LOOKUP, "the database is starting")
        return table((1, "a", "x"))

    versions = LookupVersions(node, Table(read))
    versions.open(budget_s=60.0)
    assert versions.current.table.num_rows == 1


def test_an_epoch_sees_its_version_also_after_a_restart(node: PlannedNode, tmp_path: Path) -> None:
    rows = {"name": "x"}
    lookup = Table(lambda: table((1, "a", rows["name"])))
    tables = LookupTables([node], {"names": lookup}, SnapshotStore(tmp_path))
    tables.open()
    recorded = tables.begin_epoch(lambda: ())
    rows["name"] = "y"
    restarted = LookupTables([node], {"names": lookup}, SnapshotStore(tmp_path))
    restarted.open()
    assert restarted.snapshot("names", epoch(**recorded)).table.column("name").to_pylist() == ["x"]
    current = restarted.begin_epoch(lambda: ())
    assert current != recorded
    assert restarted.snapshot("names", epoch(**current)).table.column("name").to_pylist() == ["y"]


def test_if_its_version_is_gone_all_queries_of_an_epoch_see_the_same_rows(
    node: PlannedNode, caplog: pytest.LogCaptureFixture
) -> None:
    tables = LookupTables([node], {"names": Table(lambda: table((1, "a", "x")))})
    tables.open()
    seen = tables.snapshot("names", epoch(names="f" * 32))
    assert seen is tables.snapshot("names", epoch(names="f" * 32))
    assert "epoch 7 is replayed with the current rows, because those of version ffffffff are gone" in caplog.text


def test_a_disk_that_is_full_is_a_warning(node: PlannedNode, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a directory")
    tables = LookupTables([node], {"names": Table(lambda: table((1, "a", "x")))}, SnapshotStore(tmp_path / "file"))
    tables.open()
    assert tables.begin_epoch(lambda: ()) == tables.begin_epoch(lambda: ())
    assert sum("cannot be stored for a replay" in record.message for record in caplog.records) == 1
