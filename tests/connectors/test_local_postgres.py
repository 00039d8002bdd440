"""The Postgres of the local stack keeps what it is given, whatever happens to it, and asks for a password."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress

import psutil
import psycopg
import pytest

from streamling.dev.stack import ServerState, Stack
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers


def status(stack: Stack) -> ServerState:
    (found,) = [one.state for one in stack.status() if one.server == "postgres"]
    return found


def filled(postgres: PostgresServer) -> Database:
    database = postgres.database()
    database.execute("CREATE TABLE t (n int); INSERT INTO t SELECT generate_series(1, 1000)")
    return database


def test_databases_of_tests_are_empty_and_their_own(postgres: PostgresServer) -> None:
    one, other = filled(postgres), postgres.database()
    assert one.rows("SELECT count(*) FROM t WHERE n > %s", 1) == [(999,)]
    assert other.rows("SELECT 1 FROM pg_class WHERE relname = 't'") == []


def test_a_killed_server_comes_back_with_what_was_committed(postgres: PostgresServer) -> None:
    database = filled(postgres)
    postgres.kill()
    postgres.start()
    assert database.rows("SELECT sum(n) FROM t") == [(500500,)]


def test_a_server_whose_first_process_is_killed_starts_again(postgres: PostgresServer) -> None:
    database = filled(postgres)
    with database.connect():
        first, *others = postgres.processes()
        assert others
        first.kill()
        postgres.start()
    assert database.rows("SELECT sum(n) FROM t") == [(500500,)]


def test_a_server_restarts_itself_when_one_of_its_processes_crashes(
    postgres: PostgresServer, shared_stack: Stack
) -> None:
    database = filled(postgres)
    first = postgres.processes()[0].pid
    deadline = time.monotonic() + 60
    with database.connect() as doomed, database.connect() as bystander:
        psutil.Process(doomed.info.backend_pid).send_signal(signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):  # it is disconnected when the server has noticed
            while time.monotonic() < deadline:
                bystander.execute("SELECT 1")
        while True:
            try:
                assert database.rows("SELECT sum(n) FROM t") == [(500500,)]
                break
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    assert postgres.processes()[0].pid == first
    assert status(shared_stack) is ServerState.RUNNING


def test_it_stops_although_a_client_is_connected_and_in_a_transaction(postgres: PostgresServer) -> None:
    database = filled(postgres)
    connection = database.connect()
    connection.execute("BEGIN; DELETE FROM t")
    began = time.monotonic()
    postgres.stop()
    assert time.monotonic() - began < 9, "it was asked twice"
    postgres.start()
    assert database.rows("SELECT count(*) FROM t") == [(1000,)]


def test_a_paused_server_answers_when_it_is_resumed(postgres: PostgresServer) -> None:
    database = postgres.database()
    with database.connect() as connection:
        postgres.pause()
        answer: list[object] = []
        waiting = threading.Thread(target=lambda: answer.extend(connection.execute("SELECT 1").fetchall()))
        waiting.start()
        waiting.join(1)
        assert not answer
        postgres.resume()
        waiting.join(30)
        assert answer == [(1,)]


def test_a_wrong_password_is_refused(postgres: PostgresServer) -> None:
    database = postgres.database()
    for wrong in ("", "guessed"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(
                host=database.host, port=database.port, user=database.user, password=wrong, dbname="postgres"
            )


def test_the_password_is_readable_for_the_owner_only_and_in_no_command_line_or_log(postgres: PostgresServer) -> None:
    password, place = postgres.database().password, postgres.site.directory
    assert (place / "password").stat().st_mode & 0o777 == 0o600
    assert password not in (place / "server.log").read_text()
    for process in postgres.processes():
        with suppress(psutil.NoSuchProcess):  # a connection that has ended meanwhile
            assert password not in " ".join(process.cmdline())
    assert (place / "data").stat().st_mode & 0o777 == 0o700


def test_texts_are_unicode_and_sorted_by_code_points(postgres: PostgresServer) -> None:
    database = postgres.database()
    assert database.rows("SHOW server_encoding") == [("UTF8",)]
    assert database.rows(
        "SELECT string_agg(x, '' ORDER BY x), lower('Ä') FROM unnest(ARRAY['a', 'B', 'é', 'Z']) x"
    ) == [("BZaé", "ä")]
