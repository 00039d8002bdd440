"""A backfill from a ClickHouse table into Postgres and ClickHouse, and what they must contain.

The table has two versions of every row, keys below zero, a key with half of all rows, and deleted rows. A
trigger of `kept` logs every row that is written to it, and `history` has no key: what is written twice is there twice.
"""

from __future__ import annotations

from streamling.testing.crash import VARIABLE
from support.clickhouse_server import ClickHouseServer
from support.crash_places import all_places
from support.harness import Child, Workspace
from support.postgres_server import Database

POINTS = tuple(point for point in all_places(("kept", "history")) if point != "before-group-commit")
_PIPELINE = """\
sources:
  old: {type: clickhouse, table_name: old, columns: 'k, id'}
sinks:
  kept: {type: postgres, from: old, schema: public, table: kept}
  history: {type: clickhouse, from: old, table: history, primary_key: id, deduplicate: false, batch_size: 3000}
"""
_OLD = """
CREATE TABLE old (k Int64, id UInt32, v UInt8, dead UInt8) ENGINE = ReplacingMergeTree(v, dead) ORDER BY (k, id)
"""
_HISTORY = """
CREATE TABLE history (k Int64, id UInt32, is_deleted UInt8) ENGINE = MergeTree ORDER BY id
SETTINGS non_replicated_deduplication_window = 10000
"""
_KEPT = """
CREATE TABLE kept (k bigint, id bigint, PRIMARY KEY (k, id));
CREATE TABLE log (k bigint, id bigint);
CREATE FUNCTION log_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO log VALUES (NEW.k, NEW.id);
  RETURN NEW;
END $$;
CREATE TRIGGER log_row BEFORE INSERT ON kept FOR EACH ROW EXECUTE FUNCTION log_row();
"""


class Backfill:
    """The pipeline, its table of `rows` rows of which every twentieth is deleted, and its targets."""

    def __init__(self, place: Workspace, clickhouse: ClickHouseServer, postgres: Database, rows: int) -> None:
        self._place = place
        self._clickhouse = clickhouse.own_database()
        self._postgres = postgres
        self._rows = rows
        self._settings = {
            **self._clickhouse.settings("SOURCE"),
            **self._clickhouse.settings("SINK"),
            **postgres.settings(),
        }
        for statement in (_OLD, _HISTORY):
            self._clickhouse.execute(statement)
        key = f"if(number % 2, 0, toInt64(number) - {rows // 2})"
        for version in (1, 2):
            self._clickhouse.execute(f"INSERT INTO old SELECT {key}, number, {version}, 0 FROM numbers({rows})")
        self._clickhouse.execute(f"INSERT INTO old SELECT 0, number, 3, 1 FROM numbers({rows}) WHERE number % 20 = 1")
        postgres.execute(_KEPT)
        place.write(_PIPELINE)

    def start(self, crash: str | None = None, *, spark: bool = False, **settings: object) -> Child:
        environment = {VARIABLE: crash} if crash else {}
        return self._place.start(environment=environment, spark=spark, **self._settings, **settings)

    @property
    def written(self) -> int:
        """Rows in Postgres so far."""
        return int(self._postgres.rows("SELECT count(*) FROM kept")[0][0])

    def differences(self) -> list[str]:
        """How the targets differ from the model: in the number of rows, of different rows, and in the sums of keys."""
        expected = [n for n in range(self._rows) if n % 20 != 1]
        owed = (len(expected), len(expected), sum(expected), sum(n - self._rows // 2 for n in expected if n % 2 == 0))
        sums = "count(*), count(DISTINCT id), sum(id)::bigint, sum(k)::bigint"
        held = {table: self._postgres.rows(f"SELECT {sums} FROM {table}")[0] for table in ("kept", "log")}
        held["history"] = self._clickhouse.rows("SELECT count(), uniqExact(id), sum(id), sum(k) FROM history")[0]
        return [f"{table} has {found} instead of {owed}" for table, found in held.items() if found != owed]
