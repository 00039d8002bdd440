"""The connectors of the guide keep the contract: the code of the page is loaded and called in the engine's order."""

from __future__ import annotations

import pickle
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from streamling.connector import Applied, BadRow, Epoch, Room, Sink, SinkContext, Slice, Source, Task
from streamling.engine.preparation import PreparedPipeline, prepare
from streamling.errors import Fenced, TransientError
from streamling.plugin.loading import load_plugins
from streamling.spec.pipeline import PipelineText
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import Plugin
from support.doc_pages import ROOT, write_modules

SLICE = Slice("orders", "orders:outbox", None, 4, ([1, 4],), 3)
EPOCH = Epoch("one", 1, "app", "generation", 0, 0, (SLICE,))
NEXT = replace(EPOCH, id="two", number=2, slices=(Slice("orders", "orders:outbox", 4, 6, ([4, 6],), 2),))

PIPELINE = """
sources:
  orders: {{type: outbox, database: {directory}/shop.db, primary_key: id, on_error: skip}}
sinks:
  copy: {{type: sqlite, from: orders, database: {directory}/copy.db, table: copied, on_error: skip}}
"""


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[PreparedPipeline]:
    write_modules(ROOT / "docs" / "connectors.md", tmp_path / "connectors")
    text = PipelineText(PIPELINE.format(directory=tmp_path))
    yield prepare(text, Settings(plugin=Plugin(path=str(tmp_path / "connectors"))))
    load_plugins(Settings())  # forgets what was loaded by path


@pytest.fixture
def sink(prepared: PreparedPipeline) -> Iterator[Sink]:
    opened = open_sink(prepared)
    yield opened
    opened.close()


def open_sink(prepared: PreparedPipeline, sink: Sink | None = None) -> Sink:
    chosen = sink or prepared.sinks["copy"]
    chosen.open(SinkContext("copy", "app", "generation", prepared.plan.node("orders").schema, ("id",)))
    return chosen


def other_process(prepared: PreparedPipeline) -> Sink:
    """The same sink as another process has it."""
    node = prepared.plan.node("copy").spec
    return open_sink(prepared, type(prepared.sinks["copy"])(node, node.options))  # type: ignore[call-arg]


def batch(*ids: int) -> pa.RecordBatch:
    rows = [{"id": n, "body": f"order {n}", "_gs_op": "i"} for n in ids]
    return pa.RecordBatch.from_pylist(rows)


def write(sink: Sink, epoch: Epoch, *ids: int) -> Any:
    return sink.writer().write(epoch, Task(0, 0), [batch(*ids)])


def copied(directory: Path) -> list[int]:
    with closing(sqlite3.connect(directory / "copy.db")) as connection:
        return [id_ for (id_,) in connection.execute("SELECT id FROM copied ORDER BY rowid")]


# The sink


def test_rows_are_there_after_the_commit_and_not_before(sink: Sink, tmp_path: Path) -> None:
    report = write(sink, EPOCH, 1, 2, 3)
    assert (copied(tmp_path), sink.applied(EPOCH.slices)) == ([], Applied.YES)  # of its own transaction
    assert sink.commit(EPOCH, [report]) == 3
    assert (copied(tmp_path), sink.applied(EPOCH.slices)) == ([1, 2, 3], Applied.YES)
    assert sink.applied(NEXT.slices) is Applied.NO


def test_an_epoch_that_is_aborted_leaves_nothing(sink: Sink, tmp_path: Path) -> None:
    write(sink, EPOCH, 1, 2, 3)
    sink.abort(EPOCH)
    assert (copied(tmp_path), sink.applied(EPOCH.slices)) == ([], Applied.NO)
    sink.commit(EPOCH, [write(sink, EPOCH, 1, 2, 3)])
    sink.abort(EPOCH)
    assert copied(tmp_path) == [1, 2, 3]


def test_a_replay_finds_itself_done(sink: Sink, tmp_path: Path) -> None:
    sink.commit(EPOCH, [write(sink, EPOCH, 1, 2, 3)])
    again = replace(EPOCH, id="again")
    assert sink.commit(again, [write(sink, again, 1, 2, 3)]) == 0
    sink.commit(NEXT, [write(sink, NEXT, 4, 5)])
    assert copied(tmp_path) == [1, 2, 3, 4, 5]


def test_an_epoch_that_another_owner_has_passed_is_fenced(
    sink: Sink, prepared: PreparedPipeline, tmp_path: Path
) -> None:
    sink.commit(EPOCH, [write(sink, EPOCH, 1, 2, 3)])
    sink.commit(NEXT, [write(sink, NEXT, 4, 5)])
    late = other_process(prepared)
    with pytest.raises(Fenced):
        write(late, EPOCH, 1, 2, 3)
    late.abort(EPOCH)
    late.close()
    assert copied(tmp_path) == [1, 2, 3, 4, 5]


def test_an_abandoned_epoch_cannot_come_late(sink: Sink, prepared: PreparedPipeline, tmp_path: Path) -> None:
    successor = other_process(prepared)
    assert successor.abandon(EPOCH) is Applied.NO
    with pytest.raises(Fenced):
        write(sink, EPOCH, 1, 2, 3)
    sink.abort(EPOCH)
    anew = replace(EPOCH, id="anew")
    successor.commit(anew, [write(successor, anew, 1, 2, 3)])
    assert successor.abandon(EPOCH) is Applied.YES
    successor.close()
    assert copied(tmp_path) == [1, 2, 3]


def test_who_abandons_waits_for_the_transaction_of_the_owner(sink: Sink, prepared: PreparedPipeline) -> None:
    successor = other_process(prepared)
    successor._connection.execute("PRAGMA busy_timeout = 0")  # type: ignore[attr-defined]
    write(sink, EPOCH, 1, 2, 3)
    with pytest.raises(TransientError, match="database is locked"):
        successor.abandon(EPOCH)
    sink.commit(EPOCH, [])
    assert successor.abandon(EPOCH) is Applied.YES
    successor.close()


def test_rows_that_the_table_refuses_are_named_by_their_number(prepared: PreparedPipeline, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        connection.execute("CREATE TABLE copied (id INTEGER CHECK (id <> 2), body TEXT, _gs_op TEXT)")
    sink = open_sink(prepared)
    report = write(sink, EPOCH, 1, 2, 3)
    (bad,) = report.bad_rows
    assert (report.rows, report.rejected, bad.index, bad.row["id"]) == (2, 1, 1, 2)
    sink.abort(EPOCH)  # as the engine does: letters first, then once more without the row
    assert sink.commit(EPOCH, [write(sink, EPOCH, 1, 3)]) == 2
    sink.close()
    assert copied(tmp_path) == [1, 3]


# The source


@pytest.fixture
def source(prepared: PreparedPipeline, tmp_path: Path) -> Source:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, body)")
        connection.executemany("INSERT INTO outbox VALUES (?, ?)", [(n, f"order {n}") for n in range(1, 26) if n != 13])
        connection.execute("UPDATE outbox SET body = x'00' WHERE id = 4")
    return prepared.sources["orders"]


ROOM = Room(rows=10, parts=3, part_rows=2)


def offers(source: Source) -> list[Slice]:
    found = []
    while (offer := source.offer(ROOM)) is not None:
        found.extend(offer.slices)
    assert source.ended
    return found


def rows(source: Source, slices: list[Slice]) -> tuple[list[int], list[BadRow]]:
    reader = source.reader()
    items = [item for s in slices for part in s.parts for item in reader.read(part)]
    bad = [item for item in items if isinstance(item, BadRow)]
    return [id_ for item in items if not isinstance(item, BadRow) for id_ in item.column("id").to_pylist()], bad


def test_slices_meet_and_their_rows_are_all_there_is(source: Source) -> None:
    source.open({})
    slices = offers(source)
    assert [(s.start, s.end) for s in slices] == [(None, 11), (11, 21), (21, 26)]
    ids, bad = rows(source, slices)
    assert ids == [n for n in range(1, 26) if n not in (4, 13)]
    assert [(b.reason, b.source["id"]) for b in bad] == [("not_text", 4)]
    assert rows(source, slices)[0] == ids


def test_reading_goes_on_behind_the_stored_position(source: Source) -> None:
    source.open({"orders:outbox": 21})
    assert [(s.start, s.end) for s in offers(source)] == [(21, 26)]
    source.open({"orders:outbox": 26})
    assert offers(source) == []


def test_the_reader_travels_by_value(source: Source) -> None:
    module = sys.modules[type(source).__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        sent = cloudpickle.dumps(source.reader())
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert module.__name__.startswith("streamling_plugin_")
    del sys.modules[module.__name__]  # a worker has never had it
    assert [item.column("id").to_pylist() for item in pickle.loads(sent).read([1, 3])] == [[1, 2]]
