"""State in Postgres: shared, conditional, and no answer of the server is guessed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from streamling.connector import Epoch, Slice
from streamling.engine.protocol.pending import Journal
from streamling.engine.protocol.state import PostgresState, generation, open_state
from streamling.engine.protocol.state import postgres as module
from streamling.errors import Fenced, PermanentError, StreamlingError, TransientError, UserError
from streamling.retry import retry
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType, SslMode, StateBackend
from support.postgres_server import Database, PostgresServer
from support.silent_proxy import SilentProxy, silent_proxy

pytestmark = pytest.mark.servers

EPOCH = Epoch("e1", 1, "app", "gen", 0, 0, (Slice("rows", "rows:generator", None, {"next": 5}, (), 5),))


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


@contextmanager
def opened(database: Database, namespace: str = "app", **more: object) -> Iterator[PostgresState]:
    store = PostgresState(database.state_block(**more), namespace)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def behind_a_proxy(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PostgresState, SilentProxy]]:
    monkeypatch.setattr(module, "_STATEMENT_S", 1)
    monkeypatch.setattr(module, "_IDLE_IN_TRANSACTION_S", 2)
    with silent_proxy(database.host, database.port) as proxy, opened(database, port=proxy.port) as store:
        yield store, proxy


def deaf_at_commit(store: PostgresState, proxy: SilentProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next COMMIT arrives, its answer does not."""
    commit = store._session.commit

    def unheard() -> None:
        monkeypatch.setattr(store._session, "commit", commit)
        proxy.deaf = True
        try:
            commit()
        finally:
            proxy.deaf = False

    monkeypatch.setattr(store._session, "commit", unheard)


def refused(action: object) -> StreamlingError:
    with pytest.raises(StreamlingError) as caught:
        action()  # type: ignore[operator]
    assert caught.value.code == "STATE_UNREADABLE"
    return caught.value


# The table


def test_schema_and_table_are_made_as_documented(database: Database) -> None:
    with opened(database) as store:
        store.put({"k": {"next": 1}})
    columns = database.rows(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_schema = 'streamling' AND table_name = 'state' ORDER BY ordinal_position"
    )
    assert columns == [
        ("namespace", "text", "NO"),
        ("key", "text", "NO"),
        ("data", "jsonb", "NO"),
        ("created_at", "timestamp with time zone", "YES"),
    ]
    assert database.rows("SELECT namespace, key, data FROM streamling.state") == [("app", "k", {"next": 1})]


def test_schema_and_table_are_made_by_many_at_once(database: Database) -> None:
    both = threading.Barrier(6)

    def open_and_put(number: int) -> None:
        both.wait()
        with opened(database) as store:
            store.put({str(number): number})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(open_and_put, range(6)))
    with opened(database) as store:
        assert store.items() == {str(n): n for n in range(6)}


def test_names_can_be_others_and_keep_their_letters(database: Database) -> None:
    with opened(database, state_schema_name="Own", state_table_name="_Positions2") as store:
        store.put({"k": 1})
    assert database.rows('SELECT data FROM "Own"."_Positions2"') == [(1,)]


@pytest.mark.parametrize("name", ["", "1state", "my state", "state;--", "état", "a.b", 'state"'])
@pytest.mark.parametrize("field", ["state_schema_name", "state_table_name"])
def test_a_name_that_is_no_identifier_is_a_user_error(database: Database, field: str, name: str) -> None:
    error = refused(lambda: PostgresState(database.state_block(**{field: name}), "app"))
    assert isinstance(error, UserError)
    assert repr(name) in error.message


def test_who_may_not_make_a_table_uses_the_one_that_is_there(postgres: PostgresServer, database: Database) -> None:
    user = f"guest_{database.name}"
    database.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'guest'")
    as_guest = {"user": user, "password": "guest"}
    error = refused(lambda: PostgresState(database.state_block(**as_guest), "app"))
    assert isinstance(error, PermanentError)
    assert "permission denied" in error.message
    assert "privilege to create the schema" in (error.hint or "")
    with opened(database) as owner:
        owner.put({"k": 1})
    database.execute(
        f"GRANT USAGE ON SCHEMA streamling TO {user}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON streamling.state TO {user}"
    )
    with opened(database, **as_guest) as guest:
        assert guest.exchange({"k": 1}, {"k": 2})


def test_replacing_a_value_keeps_when_it_was_created(database: Database) -> None:
    with opened(database) as store:
        store.put({"k": 1})
        database.execute("UPDATE streamling.state SET created_at = '2001-02-03 04:05:06Z'")
        store.put({"k": 2})
    found = database.rows("SELECT data, extract(year FROM created_at)::int FROM streamling.state")
    assert found == [(2, 2001)]


def test_namespaces_of_one_table_do_not_see_each_other(database: Database) -> None:
    with opened(database, "one") as one, opened(database, "other") as other:
        one.put({"k": 1})
        other.put({"k": 2})
        assert not other.exchange({"k": 1}, {"k": 3})
        one.clear()
        assert (one.items(), other.items()) == ({}, {"k": 2})


def test_a_state_survives_reopening(database: Database) -> None:
    with opened(database) as first:
        first.put({"k": {"next": 7}})
        made = generation(first)
    with opened(database) as second:
        assert second.get("k") == {"next": 7}
        assert generation(second) == made


def test_a_value_that_jsonb_cannot_hold_is_an_error_that_lasts(database: Database) -> None:
    with opened(database) as store:
        for value in ("nul \0", float("nan"), "half of a pair \ud800"):
            assert isinstance(refused(lambda value=value: store.put({"k": value})), PermanentError)
        store.put({"k": 1})
        assert store.items() == {"k": 1}


# Which answers may pass


def test_a_server_that_is_away_is_transient_and_used_again_when_it_is_back(
    postgres: PostgresServer, database: Database
) -> None:
    with opened(database) as store:
        store.put({"k": 1})
        postgres.stop()
        try:
            for _ in range(2):
                assert isinstance(refused(lambda: store.put({"k": 2})), TransientError)
        finally:
            postgres.start()
        store.put({"k": 3})
        assert store.get("k") == 3


def test_a_server_that_is_not_there_at_the_start_is_named_with_what_to_check(database: Database) -> None:
    error = refused(lambda: PostgresState(database.state_block(port=1, acquire_timeout_secs=1), "app"))
    assert "127.0.0.1:1/" in error.message
    assert "state_backend.postgres" in (error.hint or "")


def test_tls_is_insisted_on_unless_told_otherwise(database: Database) -> None:
    assert StateBackend().postgres.sslmode is SslMode.REQUIRE
    error = refused(lambda: PostgresState(database.state_block(sslmode="require"), "app"))
    assert isinstance(error, PermanentError)
    assert "does not support SSL" in error.message


def test_a_wrong_password_is_an_error_that_lasts_and_is_not_shown(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error = refused(lambda: PostgresState(database.state_block(password="guessed-word"), "app"))
    assert isinstance(error, PermanentError)
    assert "authentication failed" in error.message
    assert "guessed-word" not in f"{error} {error.hint} {error.__cause__!r} {caplog.text}"


def test_who_sleeps_in_a_transaction_holds_others_up_only_for_a_while(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_IN_TRANSACTION_S", 2)
    with opened(database) as sleeper, opened(database) as other:
        sleeper._session.begin()
        sleeper._take_lock()
        assert other.exchange({}, {"k": 1})
        with pytest.raises(TransientError):
            sleeper._session.rows("SELECT 1")
        sleeper._session.rollback()
        assert sleeper.get("k") == 1


# An answer that is lost


def test_an_exchange_whose_commit_was_done_unheard_is_ours(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with behind_a_proxy(database, monkeypatch) as (store, proxy):
        store.put({"position": 1, "pending": 2})
        deaf_at_commit(store, proxy, monkeypatch)
        change = {"position": 1, "pending": 2}, {"position": 2}, ["pending"]
        with pytest.raises(TransientError):
            store.exchange(*change)
        assert store.items() == {"position": 2}
        assert store.exchange(*change), "it was ours"
        assert not store.exchange(*change), "another one with the same words is not"
        assert store.items() == {"position": 2}


def test_an_exchange_whose_commit_never_arrived_is_done_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind_a_proxy(database, monkeypatch) as (store, proxy):
        store.put({"position": 1})
        proxy.kill_next_with = b"COMMIT"
        with pytest.raises(TransientError):
            store.exchange({"position": 1}, {"position": 2})
        assert retry(
            lambda: store.exchange({"position": 1}, {"position": 2}), what="", stopping=lambda: False, budget_s=30
        )
        assert store.items() == {"position": 2}


def test_who_was_overtaken_after_an_unanswered_commit_is_told(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind_a_proxy(database, monkeypatch) as (store, proxy), opened(database) as other:
        store.put({"position": 1})
        deaf_at_commit(store, proxy, monkeypatch)
        with pytest.raises(TransientError):
            store.exchange({"position": 1}, {"position": 2})
        assert other.exchange({"position": 2}, {"position": 3})
        assert not store.exchange({"position": 1}, {"position": 2})
        assert other.items() == {"position": 3}


@pytest.mark.parametrize("step", ["record", "finalize"])
def test_no_step_of_an_epoch_is_fenced_by_its_own_unheard_commit(
    database: Database, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with behind_a_proxy(database, monkeypatch) as (store, proxy):
        journal = Journal(store, recording=True)

        def ask_state(action: object) -> object:
            return retry(action, what=step, stopping=lambda: False, budget_s=30)  # type: ignore[arg-type]

        if step == "record":
            deaf_at_commit(store, proxy, monkeypatch)
        pending = ask_state(lambda: journal.record(EPOCH, "plan"))
        assert pending.epoch == EPOCH  # type: ignore[attr-defined]
        if step == "finalize":
            deaf_at_commit(store, proxy, monkeypatch)
        ask_state(lambda: journal.finalize(pending))  # type: ignore[arg-type]
        assert journal.positions() == {"rows:generator": {"next": 5}}
        with pytest.raises(Fenced):
            journal.finalize(pending)  # type: ignore[arg-type]


# Which store the settings name


def test_the_settings_lead_to_postgres(database: Database) -> None:
    backend = StateBackend(backend_type=BackendType.POSTGRES, postgres=database.state_block())
    store = open_state(Settings(application_id="mine", state_backend=backend))
    store.put({"k": 1})
    store.close()
    assert store.durable
    assert database.rows("SELECT namespace, key FROM streamling.state") == [("mine", "k")]


def test_a_store_leaves_no_connection_behind(database: Database) -> None:
    with opened(database) as store:
        store.put({"k": 1})
    counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name LIKE %s"
    with psycopg.connect(
        host=database.host, port=database.port, user=database.user, password=database.password, dbname="postgres"
    ) as connection:
        for _ in range(100):
            if connection.execute(counted, [database.name, "streamling/%"]).fetchone() == (0,):
                break
            time.sleep(0.05)
        else:
            raise AssertionError("it is still there")
