"""Pipelines whose positions are in Postgres: they resume, outlast an outage, and show the password to nobody."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from support.harness import Workspace
from support.postgres_server import Database, PostgresServer

pytestmark = [pytest.mark.servers, pytest.mark.spark]

PIPELINE = """\
sources:
  numbers: {{type: generator, columns: {{id: id}}, primary_key: id, {generator}}}
sinks:
  out: {{type: file, from: numbers, path: out, format: json, batch_flush_interval: 200ms}}
"""


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def ids(place: Workspace) -> list[int]:
    return [row["id"] for row in place.rows("out", "json")]


def ids_of(count: int) -> list[int]:
    return list(range(count))


def state(database: Database) -> dict[str, object]:
    return dict(database.rows("SELECT key, data FROM streamling.state WHERE namespace = 'test_app'"))


def test_a_run_resumes_from_positions_in_postgres(place: Workspace, database: Database) -> None:
    for count in (50, 80):
        place.write(PIPELINE.format(generator=f"rows: {count}"))
        place.run(**database.state_settings()).succeeded()
    assert ids(place) == ids_of(80)
    assert not (place.directory / "state.db").exists()
    listed = place.run("state", "list", **database.state_settings()).succeeded().stdout
    assert {line.split("\t")[0] for line in listed.splitlines()} == set(state(database))
    place.run("state", "reset", "--yes", **database.state_settings()).succeeded()
    assert state(database) == {}


def test_an_outage_is_outlasted(place: Workspace, postgres: PostgresServer, database: Database) -> None:
    place.write(PIPELINE.format(generator="rate: 200"))
    running = place.start_warm(**database.state_settings())
    running.until_epochs(3)
    postgres.stop()
    try:
        running.until(lambda: "state backend failed (attempt 6)" in running.stderr, "the sixth attempt")
    finally:
        postgres.start()
    assert running.ended() is None, running.stderr[-4000:]
    assert "state backend failed" in running.stderr
    seen = running.epochs
    running.until_epochs(seen + 5)
    running.stop().succeeded()
    assert ids(place) == ids_of(len(ids(place)))
    assert "STATE_MOVED" not in running.stderr


def test_a_killed_database_neither_loses_nor_repeats_rows(
    place: Workspace, postgres: PostgresServer, database: Database
) -> None:
    place.write(PIPELINE.format(generator="rate: 500"))
    running = place.start_warm(**database.state_settings(), EPOCH__ROWS=50)
    for _ in range(3):
        running.until_epochs(running.epochs + 3)
        postgres.kill()
        postgres.start()
    running.until_epochs(running.epochs + 3)
    running.stop().succeeded()
    assert ids(place) == ids_of(len(ids(place)))


def command_lines() -> Iterator[str]:
    """Of all processes there are, whoever has started them."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            yield " ".join(process.cmdline())


def test_the_password_is_nowhere_to_be_seen(place: Workspace, database: Database) -> None:
    """Neither that of the state, which the sinks share, nor the one that a sink has for itself."""
    own = f"sesame-{uuid.uuid4().hex}"
    database.execute(
        f"CREATE ROLE own_{database.name} LOGIN PASSWORD '{own}'; "
        f"GRANT CREATE ON DATABASE {database.name} TO own_{database.name}"
    )
    place.write(
        PIPELINE.format(generator="rows: 2000, rate: 500")
        + "  shared: {type: postgres, from: numbers, schema: shared, table: numbers}\n"
        "  apart: {type: postgres, from: numbers, schema: apart, table: numbers}\n"
    )
    settings = database.state_settings() | database.settings()
    settings |= {
        "POSTGRES_SINK_CONNECTIONS__APART__USER": f"own_{database.name}",
        "POSTGRES_SINK_CONNECTIONS__APART__PASS": own,
    }
    environment: dict[str, str | None] = {"RUST_LOG": "trace"}
    running = place.start(environment=environment, **settings)
    running.until_epochs(1)
    lines = list(command_lines())
    assert any("streamling.cli.main" in line for line in lines)
    finished = running.wait().succeeded()
    assert database.rows("SELECT tableowner FROM pg_tables WHERE schemaname = 'apart' AND tablename = 'numbers'") == [
        (f"own_{database.name}",)
    ]
    texts = [*lines, finished.stdout, finished.stderr, json.dumps(state(database))]
    wrong = {**settings, "STATE_BACKEND__POSTGRES__USER": "nobody_knows_me"}
    for words in (["run", "pipeline.yaml", "--traceback"], ["state", "list", "--traceback"]):
        failed = place.run(*words, environment=environment, **wrong)
        assert failed.code == 1
        assert "authentication failed" in failed.stderr
        texts += [failed.stdout, failed.stderr]
    for words in (["plan", "pipeline.yaml"], ["validate", "pipeline.yaml"], ["doctor"]):
        shown = place.run(*words, environment=environment, **settings)
        texts += [shown.stdout, shown.stderr]
    texts += [file.read_bytes().decode("latin1") for file in place.directory.rglob("*") if file.is_file()]
    for password in (database.password, own):
        assert not [text[:200] for text in texts if password in text]
