"""A plugin source, a query, a handler, a script and a table, killed at every point of the protocol: the table is the
model, and every request that is sent again has the key it had before."""

from __future__ import annotations

import json
import signal
from collections import defaultdict

import pytest

from streamling.testing.crash import VARIABLE
from support.crash_places import all_places
from support.harness import Workspace
from support.http_server import Answer, Request, recording_server
from support.postgres_server import PostgresServer

pytestmark = [pytest.mark.faults, pytest.mark.servers]

ROWS, STEP = 200, 10
PLUGIN = """
import pyarrow as pa

from streamling.plugin import SourcePlugin, register_source

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("_gs_op", pa.string(), nullable=False)])


@register_source("steps")
class Steps(SourcePlugin):
    '''Numbers, some at a time, the next ones when these are delivered.'''

    bounded = True

    def output_schema(self):
        return SCHEMA

    def initialize(self):
        self.next = self.stored = self.context.state.get() or 0
        self.marked = {}

    def is_running(self):
        return self.stored < int(self.options["rows"])

    def generate_batch(self):
        if self.next > self.stored:
            return None
        numbers = list(range(self.next, self.next + int(self.options["step"])))
        self.next += len(numbers)
        return pa.RecordBatch.from_pydict({"id": numbers, "_gs_op": ["i"] * len(numbers)}, schema=SCHEMA)

    def process_checkpoint_marker(self, epoch):
        self.marked[epoch] = self.next

    def process_checkpoint_finalizer(self, epoch):
        done = [marked for marked in self.marked if marked <= epoch]
        if done:
            self.stored = self.marked[max(done)]
            self.context.state.put(self.stored)
"""
SQL = """\
  asked: {type: sql, primary_key: id, sql: "SELECT id, id * 3 AS n FROM numbers"}
"""


def pipeline(url: str, *, sql: bool, one_row: bool) -> str:
    source = "asked" if sql else "numbers"
    return (
        f"sources: {{numbers: {{type: steps, rows: '{ROWS}', step: '{STEP}', primary_key: id}}}}\n"
        f"transforms:\n{SQL if sql else ''}"
        f"  h: {{type: handler, from: {source}, primary_key: id, url: '{url}', batch_size: 4, "
        f"one_row_per_request: {str(one_row).lower()}, schema_override: {{answer: string}}}}\n"
        "  s: {type: script, from: h, primary_key: id, language: javascript, "
        "script: 'row => ({...row, answer: `${row.answer}!`})'}\n"
        "sinks: {table: {type: postgres, from: s, schema: public, table: answers, batch_flush_interval: 10ms}}\n"
    )


def respond(request: Request) -> Answer:
    rows = [{**row, "answer": f"a{row['id']}"} for row in request.rows]
    return Answer(body=json.dumps(rows if isinstance(request.json, list) else rows[0]).encode())


@pytest.mark.parametrize("sql", [False, pytest.param(True, marks=pytest.mark.spark)])
def test_kills_at_every_point_leave_the_table_exact_and_the_keys_the_same(
    place: Workspace, postgres: PostgresServer, sql: bool
) -> None:
    database = postgres.database()
    places = all_places(("table",))
    if sql:  # a start takes ten times as long
        places = (places[0], places[2])
    with recording_server(respond) as server:
        place.write(pipeline(server.url, sql=sql, one_row=not sql), plugin=PLUGIN)
        settings = database.settings()
        for number, point in enumerate(places):
            child = place.start(environment={VARIABLE: f"{point}@{1 + number % 2}"}, spark=sql, **settings)
            killed = child.wait()
            assert killed.code == -signal.SIGKILL, f"{point}\n{killed.stderr}"
        last = place.run(**settings) if sql else place.start(spark=False, **settings).wait()
        last.succeeded()
        requests = list(server.requests)
    extra = (lambda n: (3 * n,)) if sql else lambda n: ()
    columns = "id, n, answer" if sql else "id, answer"
    found = database.rows(f"SELECT {columns} FROM public.answers ORDER BY id")
    assert found == [(n, *extra(n), f"a{n}!") for n in range(ROWS)]
    keys: dict[bytes, set[str]] = defaultdict(set)
    for request in requests:
        keys[request.body].add(request.key)
    assert len(requests) > len(keys), "nothing was sent again"
    assert {body: len(found) for body, found in keys.items() if len(found) != 1} == {}
