"""Rows and positions through pgbouncer: a process dies within a transaction, and the next one continues."""

from __future__ import annotations

import signal

import pytest

from streamling.testing.crash import VARIABLE
from support.harness import Workspace
from support.pgbouncer_server import PgBouncer
from support.postgres_server import PostgresServer

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]

ROWS, SLOTS = 4000, 700
PIPELINE = f"""\
sources:
  numbers: {{type: generator, rows: {ROWS}, columns: {{id: id}}}}
transforms:
  slots: {{type: sql, primary_key: slot, sql: "SELECT id % {SLOTS} AS slot, id FROM numbers"}}
sinks:
  current: {{type: postgres, from: slots, schema: public, table: current}}
  audit: {{type: postgres, from: numbers, schema: public, table: audit}}
  again: {{type: postgres, from: numbers, schema: public, table: again, batch_size: 100}}
"""


def test_a_process_killed_within_transactions_of_a_pooler_leaves_exact_tables(
    place: Workspace, postgres: PostgresServer, pooler: PgBouncer
) -> None:
    database = postgres.database()
    pooled = pooler.before(database)
    settings = {**pooled.settings(), **pooled.state_settings(), "EPOCH__ROWS": 1000}
    place.write(PIPELINE)
    killed = place.start(environment={VARIABLE: "before-commit:audit@2"}, **settings).wait()
    assert killed.code == -signal.SIGKILL, killed.stderr
    place.run(**settings).succeeded()
    for table in ("audit", "again"):
        assert database.rows(f"SELECT id FROM {table} ORDER BY id") == [(n,) for n in range(ROWS)]
    last = [(slot, max(range(slot, ROWS, SLOTS))) for slot in range(SLOTS)]
    assert database.rows("SELECT slot, id FROM current ORDER BY slot") == last
