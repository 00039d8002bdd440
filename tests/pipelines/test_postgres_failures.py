"""What Postgres refuses: at the start or at a row, with a message that says what to do; and several sinks at once."""

from __future__ import annotations

import json
import re
import time

import pytest

from support.harness import PATIENCE_S, Workspace
from support.postgres_server import Database, PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.servers]

SOURCE = """\
sources:
  numbers:
    type: generator
    rows: 20
    primary_key: id
    columns: {id: id, name: "concat('n', id)", big: "id * 1000000000"}
"""


ROWS = 2000
FLOWING = f"""\
sources:
  numbers:
    type: generator
    rows: {ROWS}
    rate: 400
    columns: {{id: id, name: "concat('n', id)", big: "id * 1000000000"}}
"""
REVOKED = "  revoked: {type: postgres, from: numbers, schema: own, table: revoked}\n"
BREAK = """
CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not today'; END $$;
CREATE TRIGGER no BEFORE INSERT ON raised FOR EACH ROW EXECUTE FUNCTION no();
ALTER TABLE renamed RENAME name TO title;
ALTER TABLE required ADD must text NOT NULL DEFAULT '';
ALTER TABLE required ALTER must DROP DEFAULT;
ALTER TABLE narrowed ALTER big TYPE integer USING 0;
REVOKE INSERT ON own.revoked FROM {guest};
"""
MEND = """
DROP TRIGGER no ON raised;
ALTER TABLE renamed RENAME title TO name;
ALTER TABLE required DROP must;
ALTER TABLE narrowed ALTER big TYPE bigint;
GRANT INSERT ON own.revoked TO {guest};
"""
REFUSALS = {
    "raised": "not today.*SQLSTATE P0001",
    "renamed": 'renamed was changed while the pipeline.*\\n.*column "name" of relation "public.renamed" does not exist',
    "required": 'required was changed while the pipeline.*\\n.*column "must" is NOT NULL and has no default',
    "narrowed": 'narrowed was changed while the pipeline.*\\n.*column "big" is integer, and the input is int64',
    "revoked": "permission denied for table revoked.*SQLSTATE 42501",
}


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def sink(name: str, more: str = "", table: str = "numbers") -> str:
    return f"  {name}: {{type: postgres, from: numbers, schema: public, table: {table}{more}}}\n"


def test_a_table_without_a_column_or_too_narrow_ends_the_start(place: Workspace, database: Database) -> None:
    database.execute("CREATE TABLE numbers (id BIGINT PRIMARY KEY, big INTEGER)")
    place.write(f"{SOURCE}sinks:\n{sink('out')}")
    told = place.run(**database.settings()).failed().stderr
    assert 'column "name" of relation "public.numbers" does not exist' in told
    assert "out of range for type integer" in told
    assert "TABLE_UNFIT" in told
    assert told.count("Streamling Error") == 1


def test_a_value_the_table_cannot_hold_ends_the_run_and_names_the_row(place: Workspace, database: Database) -> None:
    database.execute("CREATE TABLE numbers (id BIGINT PRIMARY KEY, name VARCHAR(2) NOT NULL, big BIGINT)")
    place.write(f"{SOURCE}sinks:\n{sink('out')}")
    told = place.run(**database.settings()).failed().stderr
    assert "value too long for type character varying(2)" in told
    assert "SQLSTATE 22001" in told
    assert "'name':'n10'" in told.replace('"', "'").replace(" ", "")
    assert database.rows("SELECT count(*) FROM numbers") == [(0,)]


def test_refused_rows_become_letters_and_the_others_arrive(place: Workspace, database: Database) -> None:
    database.execute("CREATE TABLE numbers (id BIGINT PRIMARY KEY, name VARCHAR(2), big BIGINT)")
    letters = ", on_error: dead_letter, dead_letter: {type: file, path: letters}"
    place.write(f"{SOURCE}sinks:\n{sink('out', letters)}")
    place.run(**database.settings()).succeeded()
    assert database.rows("SELECT count(*) FROM numbers") == [(10,)]
    (file,) = (place.directory / "letters").glob("*.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(letter["row"]["id"] for letter in found) == list(range(10, 20))
    assert {(letter["stage"], letter["reason_code"], letter["node"]) for letter in found} == {
        ("write", "value_too_large", "out")
    }


def test_a_wrong_password_ends_the_start_and_is_not_shown(place: Workspace, database: Database) -> None:
    place.write(f"{SOURCE}sinks:\n{sink('out')}")
    finished = place.run(**{**database.settings(), "POSTGRES_SINK__PASS": "sesame-open"}).failed()
    assert "password authentication failed" in finished.stderr
    assert "sesame-open" not in finished.stderr + finished.stdout


def break_all(database: Database, statements: str) -> None:
    """Between two epochs for every sink: those that write one are let through, those of the next one all wait."""
    tables = ("own.revoked", "raised", "renamed", "required", "narrowed")
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = ANY(%s::regclass[])"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with database.connect() as other:
            other.execute(f"BEGIN; LOCK TABLE {', '.join(tables)}")
            time.sleep(0.2)  # an epoch comes every few milliseconds
            if database.rows(waiting, list(tables)) == [(len(tables),)]:
                other.execute(statements)
                other.execute("COMMIT")
                return
            other.execute("ROLLBACK")
    raise AssertionError("the sinks never waited together")


def test_what_the_database_refuses_for_good_is_told_for_every_sink_and_mended_by_a_new_start(
    place: Workspace, database: Database
) -> None:
    """Five ways to be refused in the middle of a run, at once; then a lock that is held longer than a statement may
    take. Without keys, so that a row that came twice would be there twice."""
    guest = f"guest_{database.name}"
    database.execute(f"CREATE ROLE {guest} LOGIN PASSWORD 'guest'; CREATE SCHEMA own AUTHORIZATION {guest}")
    names = ("raised", "renamed", "required", "narrowed", "fine")
    place.write(f"{FLOWING}sinks:\n{''.join(sink(name, table=name) for name in names)}{REVOKED}")
    settings = {
        **database.settings(),
        "POSTGRES_SINK_CONNECTIONS__REVOKED__USER": guest,
        "POSTGRES_SINK_CONNECTIONS__REVOKED__PASS": "guest",
    }
    broken = place.start_warm(**settings)
    broken.until_epochs(1)
    break_all(database, BREAK.format(guest=guest))
    told = broken.wait().failed().stderr
    for name, words in REFUSALS.items():
        assert re.search(rf"sink {name} failed;.*{words}", told), f"{name}: {words}\n{told[-6000:]}"
    assert re.search(r"Error: postgres sink '\w+': ", told)
    assert "  hint: " in told
    assert "sink fine failed" not in told
    database.execute(MEND.format(guest=guest))
    with database.connect() as other:
        other.execute("BEGIN; LOCK TABLE fine, raised")
        waiting = place.start_warm(**settings, POSTGRES_SINK__STATEMENT_TIMEOUT_SECS=1)
        again = "sink 'raised' failed (attempt 2)"
        waiting.until(lambda: again in waiting.stderr, again)
        assert "canceling statement due to statement timeout" in waiting.stderr
    waiting.wait().succeeded()
    assert "sink 'raised' recovered after" in waiting.stderr
    for table in (*names, "own.revoked"):
        assert database.rows(f"SELECT count(*), count(DISTINCT id), max(id) FROM {table}") == [(ROWS, ROWS, ROWS - 1)]


def test_sinks_share_a_table_or_have_a_database_of_their_own(
    place: Workspace, database: Database, postgres: PostgresServer
) -> None:
    other = postgres.database()
    place.write(
        f"{SOURCE}sinks:\n{sink('one')}{sink('two')}{sink('pg-second', table='apart')}"
        "  dropped: {type: blackhole, from: numbers}\n"
    )
    own = {
        f"POSTGRES_SINK_CONNECTIONS__PG_SECOND__{key}": value
        for key, value in {
            "HOST": other.host,
            "PORT": other.port,
            "USER": other.user,
            "PASS": other.password,
            "DB": other.name,
        }.items()
    }
    finished = place.run(**database.settings(), **own).succeeded()
    assert "sinks with the same target flush one after the other: one, two" in finished.stderr
    assert database.rows("SELECT count(*), sum(id) FROM numbers") == [(20, 190)]
    assert other.rows("SELECT count(*) FROM apart") == [(20,)]
    assert database.rows("SELECT to_regclass('apart') IS NULL") == [(True,)]
    assert sorted(database.rows("SELECT sink FROM _streamling_ledger")) == [("one",), ("two",)]


FAMILY = """
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (id bigint PRIMARY KEY, parent bigint REFERENCES parents);
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$;
CREATE TRIGGER late BEFORE INSERT ON parents FOR EACH STATEMENT EXECUTE FUNCTION late();
"""


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
def test_rows_that_refer_to_rows_of_another_sink_arrive(place: Workspace, database: Database, policy: str) -> None:
    """The parents take longer, and come later in the file. One row has no parent at all."""
    database.execute(FAMILY)
    orphan = "id" if policy == "fail" else "CASE WHEN id = 7 THEN 1000 ELSE id END"
    more = f", on_error: {policy}"
    if policy == "dead_letter":
        more += ", dead_letter: {type: file, path: letters}"
    place.write(
        f"{SOURCE}transforms:\n"
        '  parents: {type: sql, primary_key: id, sql: "SELECT id FROM numbers"}\n'
        f'  children: {{type: sql, primary_key: id, sql: "SELECT id, {orphan} AS parent FROM numbers"}}\n'
        f"sinks:\n{sink('a', more, 'children').replace('numbers', 'children', 1)}"
        f"{sink('b', more, 'parents').replace('numbers', 'parents', 1)}"
    )
    finished = place.run(**database.settings()).succeeded()
    assert "because rows of some refer to rows of others: b, a" in finished.stderr
    missing = [] if policy == "fail" else [7]
    assert database.rows("SELECT count(*) FROM parents") == [(20,)]
    kept = [id_ for (id_,) in database.rows("SELECT id FROM children ORDER BY id")]
    assert kept == [n for n in range(20) if n not in missing]
    letters = [json.loads(line) for f in place.directory.glob("letters/*") for line in f.read_text().splitlines()]
    assert [letter["row"]["id"] for letter in letters] == (missing if policy == "dead_letter" else [])


def test_a_table_that_rejects_everything_ends_the_run_and_loses_nothing(place: Workspace, database: Database) -> None:
    database.execute("CREATE TABLE numbers (id BIGINT PRIMARY KEY, name TEXT, big BIGINT CHECK (big < 0))")
    place.write(f"{SOURCE}sinks:\n{sink('out', ', on_error: skip')}")
    told = place.run(EPOCH__MAX_SAME_REJECTS=20, **database.settings()).failed().stderr
    assert "ALL_ROWS_REJECTED" in told and "the last 20 rows were all rejected in the same way" in told
    database.execute("ALTER TABLE numbers DROP CONSTRAINT numbers_big_check")
    place.run(**database.settings()).succeeded()
    assert database.rows("SELECT count(*) FROM numbers") == [(20,)]
