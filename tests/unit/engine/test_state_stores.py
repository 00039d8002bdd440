"""A state store keeps JSON under keys, and changes it only if the expected values are still there."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamling.engine.protocol.state import (
    MemoryState,
    PostgresState,
    SqliteState,
    StateStore,
    claim,
    generation,
    open_state,
    reset,
    sqlite,
)
from streamling.errors import PermanentError, TransientError, UserError
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType, SqliteStateSettings, StateBackend

ON_SERVERS = [pytest.param(name, marks=pytest.mark.servers) for name in ("postgres", "pooler")]


@pytest.fixture(params=["memory", "sqlite", *ON_SERVERS])
def handles(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StateStore, StateStore]]:
    """Two handles to one namespace, as two processes would have them."""
    first: StateStore
    second: StateStore
    match request.param:
        case "memory":
            first = second = MemoryState()
        case "sqlite":
            first, second = (SqliteState(tmp_path / "state.db", "app") for _ in range(2))
        case _:
            database = request.getfixturevalue("postgres").database()
            if request.param == "pooler":
                database = request.getfixturevalue("pooler").before(database)
            first, second = (PostgresState(database.state_block(), "app") for _ in range(2))
    yield first, second
    first.close()
    second.close()


@pytest.fixture
def store(handles: tuple[StateStore, StateStore]) -> StateStore:
    return handles[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


# What every store does


@pytest.mark.parametrize(
    "value", [1, -2.5, "text with 'quotes' and \u00fc", True, [1, [2]], {"a": {"b": None}}, [], {}, ""]
)
def test_a_value_is_read_as_it_was_put(store: StateStore, value: object) -> None:
    store.put({"k": value})
    assert store.get("k") == value
    assert type(store.get("k")) is type(value)


def test_an_absent_key_reads_as_none(store: StateStore) -> None:
    assert store.get("nothing") is None


def test_a_put_replaces_the_whole_value_and_leaves_other_keys(store: StateStore) -> None:
    store.put({"a": {"x": 1, "y": 2}, "b": 1})
    store.put({"a": {"x": 3}})
    assert store.items() == {"a": {"x": 3}, "b": 1}


def test_removed_keys_are_gone_and_absent_ones_do_not_matter(store: StateStore) -> None:
    store.put({"a": 1, "b": 2, "c": 3})
    store.remove(["a", "c", "never there"])
    assert store.items() == {"b": 2}


def test_clear_forgets_everything(store: StateStore) -> None:
    store.put({"a": 1, "b": 2})
    store.clear()
    assert store.items() == {}


def test_what_was_put_or_read_can_be_changed_without_changing_the_store(store: StateStore) -> None:
    value = {"list": [1]}
    store.put({"k": value})
    value["list"].append(2)
    store.get("k")["list"].append(3)
    store.items()["k"]["list"].append(4)
    assert store.get("k") == {"list": [1]}


def test_a_second_handle_sees_what_the_first_wrote(handles: tuple[StateStore, StateStore]) -> None:
    first, second = handles
    first.put({"k": 1})
    assert second.get("k") == 1


# Exchange


def test_an_exchange_puts_and_removes_if_what_it_expects_is_there(store: StateStore) -> None:
    store.put({"position": 1, "pending": {"to": 2}})
    assert store.exchange({"position": 1, "pending": {"to": 2}}, {"position": 2}, ["pending"])
    assert store.items() == {"position": 2}


@pytest.mark.parametrize("expected", [{"position": 9}, {"position": 1, "pending": {"to": 3}}, {"other": 0}])
def test_an_exchange_changes_nothing_if_one_expectation_fails(store: StateStore, expected: dict[str, object]) -> None:
    before = {"position": 1, "pending": {"to": 2}}
    store.put(before)
    assert not store.exchange(expected, {"position": 2, "new": 1}, ["pending"])
    assert store.items() == before


def test_expecting_none_means_absent(store: StateStore) -> None:
    assert store.exchange({"k": None}, {"k": 1})
    assert not store.exchange({"k": None}, {"k": 2})
    assert store.get("k") == 1


def test_of_two_simultaneous_exchanges_exactly_one_wins(handles: tuple[StateStore, StateStore]) -> None:
    for turn in range(20):
        barrier = threading.Barrier(2)

        def compete(name: str, handle: StateStore, turn: int = turn, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return handle.exchange({"turn": turn or None}, {"turn": turn + 1, "winner": name})

        with ThreadPoolExecutor(2) as pool:
            won = dict(zip("ab", pool.map(compete, "ab", handles), strict=True))
        assert sorted(won.values()) == [False, True]
        assert won[handles[0].get("winner")]


def test_what_is_put_and_removed_at_once_is_put(store: StateStore) -> None:
    store.put({"a": 1, "b": 1})
    assert store.exchange({"a": 1}, {"a": 2}, ["a", "b"])
    assert store.items() == {"a": 2}


def test_a_number_is_expected_as_it_was_read(store: StateStore) -> None:
    numbers = {"big": 2**80, "small": 1e-9, "large": 1.5e300, "whole": 1.0, "point": 0.1}
    store.put(numbers)
    assert store.exchange(numbers, {"done": 1})
    assert store.exchange(store.items(), {"done": 2})
    assert store.get("done") == 2


# Generation


def test_a_generation_stays_until_the_state_is_reset(handles: tuple[StateStore, StateStore]) -> None:
    first, second = handles
    made = generation(first)
    assert generation(second) == made
    reset(first)
    assert first.items() == {}
    assert generation(second) != made


# SQLite


def test_namespaces_of_one_file_do_not_see_each_other(file: Path) -> None:
    one, other = SqliteState(file, "one"), SqliteState(file, "other")
    one.put({"k": 1})
    other.put({"k": 2})
    assert not other.exchange({"k": 1}, {"k": 3})
    one.clear()
    assert (one.items(), other.items()) == ({}, {"k": 2})


def test_a_sqlite_state_survives_reopening(file: Path) -> None:
    first = SqliteState(file, "app")
    first.put({"k": {"next": 7}})
    made = generation(first)
    first.close()
    second = SqliteState(file, "app")
    assert second.get("k") == {"next": 7}
    assert generation(second) == made


def test_replacing_a_value_keeps_when_it_was_created(file: Path) -> None:
    store = SqliteState(file, "app")
    store.put({"k": 1})
    with sqlite3.connect(file) as direct:
        direct.execute("UPDATE state SET created_at = '2001-02-03 04:05:06'")
    store.put({"k": 2})
    rows = sqlite3.connect(file).execute("SELECT namespace, key, data, created_at FROM state").fetchall()
    assert rows == [("app", "k", "2", "2001-02-03 04:05:06")]


def test_the_table_can_have_another_name(file: Path) -> None:
    SqliteState(file, "app", "_Positions2").put({"k": 1})
    assert sqlite3.connect(file).execute("SELECT data FROM _Positions2").fetchall() == [("1",)]


@pytest.mark.parametrize("name", ["", "1state", "my state", "state;--", "état", "a.b", 'state"'])
def test_a_table_name_that_is_no_identifier_is_a_user_error(file: Path, name: str) -> None:
    with pytest.raises(UserError) as caught:
        SqliteState(file, "app", name)
    assert caught.value.code == "STATE_UNREADABLE"
    assert repr(name) in caught.value.message


def test_a_locked_file_is_transient_and_usable_once_it_is_free(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_S", 0.02)
    store = SqliteState(file, "app")
    store.put({"k": 1})
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TransientError) as caught:
        store.put({"k": 2})
    assert caught.value.code == "STATE_UNREADABLE"
    assert store.items() == {"k": 1}, "a reader does not wait for a writer"
    other.execute("ROLLBACK")
    store.put({"k": 3})
    assert store.get("k") == 3


def test_a_full_disk_is_transient_and_named(file: Path) -> None:
    store = SqliteState(file, "app")
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(TransientError, match="disk is full"):
        store.put({"k": "x" * 100_000})
    store.put({"k": 1})
    assert store.items() == {"k": 1}


def test_a_path_that_cannot_be_written_is_permanent_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "state.db", tmp_path):
        with pytest.raises(PermanentError) as caught:
            SqliteState(path, "app")
        assert caught.value.code == "STATE_UNREADABLE"
        assert str(path) in caught.value.message
        assert "database_path" in (caught.value.hint or "")


def test_a_file_that_is_no_database_is_permanent(file: Path) -> None:
    file.write_text("these are not the pages you are looking for" * 100)
    with pytest.raises(PermanentError, match="not a database"):
        SqliteState(file, "app")


# Which store the settings name


def test_sqlite_is_the_default_and_is_bound_to_the_application(tmp_path: Path) -> None:
    block = SqliteStateSettings(database_path=str(tmp_path / "deep" / "s.db"), state_table_name="t")
    store = open_state(Settings(application_id="mine", state_backend=StateBackend(sqlite=block)))
    store.put({"k": 1})
    assert store.durable
    rows = sqlite3.connect(tmp_path / "deep" / "s.db").execute("SELECT namespace, key FROM t").fetchall()
    assert rows == [("mine", "k")]


def test_state_in_memory_is_not_durable() -> None:
    assert not open_state(Settings(state_backend=StateBackend(backend_type=BackendType.IN_MEMORY))).durable


def test_a_file_that_is_removed_under_a_run_is_noticed_at_the_next_write(file: Path) -> None:
    store = SqliteState(file, "app")
    store.put({"a": 1})
    file.unlink()
    with pytest.raises(PermanentError, match="removed or replaced"):
        store.put({"a": 2})
    file.write_bytes(b"")
    with pytest.raises(PermanentError, match="removed or replaced"):
        store.put({"a": 2})
    store.close()


def test_a_namespace_remembers_the_pipeline_that_uses_it(store: StateStore, tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    assert claim(store, one) is None
    assert claim(store, one) is None
    assert claim(store, two) == str(one)
    assert claim(store, two) is None
