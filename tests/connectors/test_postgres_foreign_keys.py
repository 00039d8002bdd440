"""Foreign keys between the tables of several sinks, and inside one table. The sinks are flushed by the engine."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamling.connector import Epoch, Report, SinkContext, Slice, Task, kinds
from streamling.engine.data.epoch_clock import EpochClock
from streamling.engine.data.exclusions import Exclusions
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.bad_rows import BadRows
from streamling.engine.protocol.delivery import Delivery, Outlet
from streamling.engine.protocol.progress import Progress
from streamling.errors import PermanentError
from streamling.letters.store import letter_stores
from streamling.plan.pipeline import make_plan
from streamling.plan.planned_node import PlannedNode
from streamling.plan.types import INT64, OPERATION_FIELD, Field, Schema
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from support.postgres_samples import batch
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

COLUMNS = Schema((Field("id", INT64, nullable=False), Field("parent", INT64), OPERATION_FIELD))
Rows = Sequence[tuple[int, int | None, str]]
TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.parents (id bigint PRIMARY KEY, parent bigint);
CREATE TABLE shop.children (id bigint PRIMARY KEY, parent bigint REFERENCES shop.parents {more});
CREATE TABLE shop.toys (id bigint PRIMARY KEY, parent bigint REFERENCES shop.children {more});
"""
# Children first: the file does not decide.
NAMES = ("toys", "children", "parents")


class Family:
    """Sinks into these tables, and what the engine does with them."""

    def __init__(self, stack: ExitStack, database: Database, policy: str, letters: Path, more: str = "") -> None:
        database.execute(TABLES.format(more=more))
        self.database = database
        self._number = 0
        options = f"schema: shop, on_error: {policy}"
        if policy == "dead_letter":
            options += f", dead_letter: {{type: file, path: {letters}}}"
        text = "sources: {rows: {type: generator, columns: {id: id, parent: id}, primary_key: id}}\nsinks:\n" + "".join(
            f"  {name}: {{type: postgres, from: rows, table: {name}, {options}}}\n" for name in NAMES
        )
        plan = make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))
        place = {"host": database.host, "port": database.port, "db": database.name}
        login = {"user": database.user, "pass": database.password}
        settings = Settings.model_validate({"postgres_sink": {**place, **login}})
        self.outlets = [Outlet(node, kinds.build(node.spec, settings), None) for node in plan.sinks]  # type: ignore[arg-type]
        for outlet in self.outlets:
            stack.callback(outlet.sink.close)
            outlet.sink.open(SinkContext(outlet.name, "app", "g", COLUMNS, ("id",)))
        progress = Progress()
        progress.set_plan(plan)
        self._rows: Mapping[str, Rows] = {}
        context = SimpleNamespace(setLocalProperty=lambda *_: None, setJobGroup=lambda *_: None)
        self._delivery = Delivery(
            session=SimpleNamespace(sparkContext=context),  # type: ignore[arg-type]
            dataflow=SimpleNamespace(write=self._write, with_origins=lambda *args: args[2]),  # type: ignore[arg-type]
            outlets=self.outlets,
            stop=StopRequest(),
            bad_rows=BadRows(plan, "app", progress, letter_stores(plan, Settings())),
            max_same_rejects=1000,
        )
        stack.callback(self._delivery.close)

    def _write(self, node: PlannedNode, results: Any, exclusions: Exclusions, *, final: bool) -> list[Report]:
        sink = next(outlet.sink for outlet in self.outlets if outlet.node is node)
        rows = self._rows.get(node.ref, ())
        batches = exclusions.filter([batch(rows, COLUMNS)] if rows else [])
        return [sink.writer().write(results.epoch, Task(0, 0, final), batches)]

    def flush(self, **rows: Rows) -> None:
        """Deliver an epoch with these rows by sink."""
        start, self._number = self._number or None, self._number + 1
        slices = (Slice("rows", "rows:generator", start, self._number, (), 1),)
        self._rows = rows
        epoch = Epoch(uuid.uuid4().hex, self._number, "app", "g", 0, 0, slices)
        self._delivery.flush(SimpleNamespace(epoch=epoch, max_bytes=None, clock=EpochClock()), self.outlets)  # type: ignore[arg-type]

    def bad(self) -> dict[str, list[int]]:
        """The ids of the rows that were rejected in the last epoch."""
        found = {o.name: [bad.row["id"] for bad in o.bad_rows] for o in self.outlets}  # type: ignore[index, call-overload]
        return {name: ids for name, ids in found.items() if ids}  # type: ignore[misc]

    def ids(self, table: str) -> list[int]:
        return [id_ for (id_,) in self.database.rows(f"SELECT id FROM shop.{table} ORDER BY 1")]


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
def test_rows_that_refer_to_rows_of_other_sinks_are_written_after_them(
    database: Database, tmp_path: Path, policy: str
) -> None:
    many = range(1, 601)
    with ExitStack() as stack:
        family = Family(stack, database, policy, tmp_path)
        rows = {name: [(n, n, "i") for n in many] for name in NAMES}
        family.flush(**rows)
        assert [family.ids(name) for name in NAMES] == [list(many)] * 3
        assert family.bad() == {}
        # All of them go away at once, and others come: neither order of the sinks serves both.
        family.flush(**{name: [*((n, None, "d") for n in many), (1000, 1000, "i")] for name in NAMES})
        assert [family.ids(name) for name in NAMES] == [[1000]] * 3
        assert family.bad() == {}
        orphan = {"parents": [(1001, None, "i")], "children": [(1001, 1001, "i"), (1002, 77, "i")], "toys": []}
        if policy == "fail":
            with pytest.raises(PermanentError, match=r"23503") as caught:
                family.flush(**orphan)
            assert "1002" in caught.value.message
            assert family.ids("children") == [1000]
            return
        family.flush(**orphan)
        assert family.bad() == {"children": [1002]}
        assert family.ids("children") == [1000, 1001]
        family.flush(parents=[(1000, None, "d"), (1001, None, "d")], children=[(1001, None, "d")])
        assert family.bad() == {"parents": [1000]}
        assert (family.ids("parents"), family.ids("children")) == ([1000], [1000])
    letters = sorted(line for file in tmp_path.glob("*.jsonl") for line in file.read_text().splitlines())
    assert len(letters) == (2 if policy == "dead_letter" else 0)


def test_a_constraint_that_is_checked_at_the_commit_waits_for_the_other_sinks(
    database: Database, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        family = Family(stack, database, "fail", tmp_path, "DEFERRABLE INITIALLY DEFERRED")
        family.flush(**{name: [(1, 1, "i"), (2, 2, "i")] for name in NAMES})
        family.flush(**{name: [(1, None, "d")] for name in NAMES})
        assert [family.ids(name) for name in NAMES] == [[2]] * 3


def test_no_row_is_rejected_because_another_sink_has_failed(database: Database, tmp_path: Path) -> None:
    with ExitStack() as stack:
        family = Family(stack, database, "skip", tmp_path)
        database.execute("REVOKE ALL ON shop.parents FROM CURRENT_USER; DROP TABLE shop.parents CASCADE")
        with pytest.raises(PermanentError, match="does not exist"):
            family.flush(parents=[(1, None, "i")], children=[(1, 1, "i")], toys=[(1, 5, "i")])
        assert family.bad() == {}
        assert family.ids("toys") == []


def test_rows_of_one_table_that_refer_to_each_other_are_written_although_one_is_rejected(
    database: Database, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        family = Family(stack, database, "skip", tmp_path)
        database.execute(
            "ALTER TABLE shop.parents ADD FOREIGN KEY (parent) REFERENCES shop.parents, ADD CHECK (id < 90)"
        )
        chain = [(n, n + 1 if n < 9 else None, "i") for n in range(1, 10)]
        family.flush(parents=[*chain[:4], (99, None, "i"), (50, 60, "i"), *chain[4:]])
        assert family.bad() == {"parents": [99, 50]}
        assert family.ids("parents") == list(range(1, 10))
