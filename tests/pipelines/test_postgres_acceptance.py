"""Pipelines from topics to tables, on a real broker and a real database. Many cases share a run."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamling.dev.topics import Message
from support.harness import Finished, MakeWorkspace, Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import Database, PostgresServer
from support.silent_proxy import silent_proxy

pytestmark = [pytest.mark.spark, pytest.mark.servers]

TYPES = {"long": "int64", "int": "int32", "text": "string", "double": "float64", "flag": "boolean"}


@dataclass
class Case:
    """Rows with their operations, the columns they have, options of the sink, and what the table holds in the end."""

    columns: dict[str, str]
    rows: list[tuple[Any, ...]]
    expected: list[tuple[Any, ...]]
    options: str = "batch_size: 1, batch_flush_interval: 100ms"
    ddl: str | None = None
    key: str = "id"
    topic: str = field(default="", init=False)


PEOPLE = {"id": "long", "name": "text", "score": "int", "active": "flag"}
TABLE = "(id BIGINT PRIMARY KEY, name TEXT, score INTEGER, active BOOLEAN)"
VALUES = {"id": "long", "value": "text", "total": "long"}
TEXTS = {"id": "text", "data": "text"}


def person(
    operation: str, id_: int, name: str | None = None, score: int | None = None, active: bool | None = None
) -> tuple[Any, ...]:
    return (operation, id_, name, score, active)


ODD_TEXTS = (
    *("a\nb", "\t", "\r\n", "\\0", "\v\f\a", "\u00e9", "e\u0301"),
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "x" * 10_000,
)
CASES = {
    "insert_then_update": Case(
        PEOPLE,
        [person("c", 1, "alpha", 10, True), person("u", 1, "beta", 20, False)],
        [(1, "beta", 20, False)],
        ddl=TABLE,
    ),
    "insert_then_delete": Case(PEOPLE, [person("c", 1, "a", 1, True), person("d", 1)], [], ddl=TABLE),
    "delete_of_nothing": Case(PEOPLE, [person("d", 99)], [], ddl=TABLE),
    "last_wins": Case(
        PEOPLE,
        [person("c", 1, "first", 1), person("c", 1, "second", 2)],
        [(1, "second", 2, None)],
        options="batch_size: 1, on_conflict: update",
        ddl=TABLE,
    ),
    "first_wins": Case(
        PEOPLE,
        [person("c", 1, "first", 1), person("c", 1, "second", 2)],
        [(1, "first", 1, None)],
        options="batch_size: 1, on_conflict: nothing",
        ddl=TABLE,
    ),
    "one_key_ten_times": Case(PEOPLE, [person("c", 1, f"v{n}", n) for n in range(10)], [(1, "v9", 9, None)], ddl=TABLE),
    "special_text_key": Case(
        TEXTS,
        [("c", 'o\'x "q" é 日本  b', "new"), ("u", 'o\'x "q" é 日本  b', "updated")],
        [('o\'x "q" é 日本  b', "updated")],
    ),
    "interleaved": Case(
        PEOPLE,
        [person("c", n, f"a{n}", n) for n in (1, 2, 3)] + [person("u", n, f"b{n}", 10 + n) for n in (1, 2, 3)],
        [(n, f"b{n}", 10 + n, None) for n in (1, 2, 3)],
        ddl=TABLE,
    ),
    "deleted_and_back": Case(
        PEOPLE,
        [person("c", 7, "old", 100, True), person("d", 7), person("c", 7, "fresh", 200, False)],
        [(7, "fresh", 200, False)],
        ddl=TABLE,
    ),
    "update_of_nothing": Case(PEOPLE, [person("u", 5, "phantom", 55)], [(5, "phantom", 55, None)], ddl=TABLE),
    "default_batching": Case(TEXTS, [("c", "k", f"v{n}") for n in range(5)], [("k", "v4")], options=""),
    "unicode_keys": Case(
        TEXTS, [("c", key, "x") for key in ("café", "日本", "🚀")], [(k, "x") for k in ("café", "日本", "🚀")]
    ),
    "no_table_yet": Case(
        VALUES,
        [("c", n, f"value_{n}", 1000 + n) for n in range(1, 11)],
        [(n, f"value_{n}", 1000 + n) for n in range(1, 11)],
    ),
    "partial_last_batch": Case(
        VALUES,
        [("c", n, "v", n) for n in range(18)],
        [(n, "v", n) for n in range(18)],
        options="batch_size: 10, batch_flush_interval: 1000ms",
    ),
    "deletes": Case(
        VALUES,
        [("c", n, "v", n) for n in (1, 2, 3)] + [("d", n, None, None) for n in (1, 2)],
        [(3, "v", 3)],
    ),
    "parallel_streams": Case(
        VALUES,
        [("c", n, f"parallel_value_{n}", 1000 + n) for n in range(100)],
        [(n, f"parallel_value_{n}", 1000 + n) for n in range(100)],
        options="parallelism: 4, batch_size: 25",
    ),
    "parallel_streams_in_order": Case(
        VALUES,
        [("c", n, f"original_{n}", 1000 + n) for n in range(5)]
        + [("c", n, f"updated_{n}", 2000 + n) for n in range(5)],
        [(n, f"updated_{n}", 2000 + n) for n in range(5)],
        options="parallelism: 3, batch_size: 5",
    ),
    "thousand": Case(
        {"id": "long", "twice": "long"}, [("c", n, 2 * n) for n in range(1000)], [(n, 2 * n) for n in range(1000)]
    ),
    "long_extremes": Case(
        {"id": "int", "v": "long"},
        [("c", n, v) for n, v in enumerate((2**63 - 1, -(2**63), 0, -1))],
        list(enumerate((2**63 - 1, -(2**63), 0, -1))),
    ),
    "double_extremes": Case(
        {"id": "int", "v": "double"},
        [("c", n, v) for n, v in enumerate((1.7976931348623157e308, 2.2250738585072014e-308, 0.0, -0.0, -1e308))],
        list(enumerate((1.7976931348623157e308, 2.2250738585072014e-308, 0.0, -0.0, -1e308))),
    ),
    "exact_doubles": Case(
        {"id": "int", "v": "double"},
        [("c", n, v) for n, v in enumerate((3.141592653589793, 2.718281828459045, 0.1 + 0.2, 123456789.123456789))],
        list(enumerate((3.141592653589793, 2.718281828459045, 0.1 + 0.2, 123456789.123456789))),
    ),
    "control_characters": Case(
        {"id": "int", "v": "text"},
        [("c", n, text) for n, text in enumerate(ODD_TEXTS)],
        list(enumerate(ODD_TEXTS)),
    ),
    "nulls_stay_nulls": Case(
        {"id": "int", "a": "long", "b": "text", "c": "double"},
        [("c", 1, None, None, None), ("c", 2, 0, "", 0.0), ("c", 3, None, "text", None), ("c", 4, 123, None, 4.5)],
        [(1, None, None, None), (2, 0, "", 0.0), (3, None, "text", None), (4, 123, None, 4.5)],
    ),
}


def message(case: Case, row: tuple[Any, ...]) -> Message:
    operation, *values = row
    return Message(
        json.dumps(dict(zip(case.columns, values, strict=True))).encode(), headers=(("dbz.op", operation.encode()),)
    )


def pipeline(cases: dict[str, Case]) -> str:
    sources, sinks = [], []
    for name, case in cases.items():
        schema = ", ".join(f"{column}: {TYPES[kind]}" for column, kind in case.columns.items())
        sources.append(
            f"  in_{name}: {{type: kafka, topic: {case.topic}, data_format: json, schema: {{{schema}}}, "
            f"primary_key: {case.key}}}\n"
        )
        options = f", {case.options}" if case.options else ""
        sinks.append(f"  {name}: {{type: postgres, from: in_{name}, schema: public, table: {name}{options}}}\n")
    return "sources:\n" + "".join(sources) + "sinks:\n" + "".join(sinks)


@dataclass
class Ran:
    database: Database
    finished: Finished

    def table(self, name: str, case: Case) -> list[tuple[Any, ...]]:
        return read(self.database, name, case)


def read(database: Database, name: str, case: Case) -> list[tuple[Any, ...]]:
    if not database.rows("SELECT to_regclass(%s)::text", f"public.{name}")[0][0]:
        return []
    return database.rows(f"SELECT {', '.join(case.columns)} FROM {name} ORDER BY 1")


@pytest.fixture(scope="module")
def ran(new_place: MakeWorkspace, kafka: KafkaBroker, postgres: PostgresServer) -> Iterator[Ran]:
    """All cases in one process: a topic and a table each."""
    database, place = postgres.database(), new_place()
    for name, case in CASES.items():
        case.topic = kafka.topic()
        kafka.produce(case.topic, [message(case, row) for row in case.rows])
        if case.ddl:
            database.execute(f"CREATE TABLE {name} {case.ddl}")
    place.write(pipeline(CASES))
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "RECORD_BATCH_SIZE": 1, **database.settings()}
    running = place.start_warm(**settings)
    rows = sum(len(case.rows) for case in CASES.values())
    running.until(lambda: _offsets(place) >= rows, "all messages")
    yield Ran(database, running.stop().succeeded())


def _offsets(place: Workspace) -> int:
    """How far all sources together have got."""
    time.sleep(0.5)
    if not (place.directory / "state.db").exists():
        return 0
    with sqlite3.connect(place.directory / "state.db") as connection:
        try:
            values = connection.execute("SELECT data FROM state WHERE key LIKE 'in\\_%' ESCAPE '\\'").fetchall()
        except sqlite3.OperationalError:
            return 0
    return sum(json.loads(value)["offset"] for (value,) in values)


@pytest.mark.parametrize("name", CASES)
def test_the_table_holds_what_the_messages_say(ran: Ran, name: str) -> None:
    case = CASES[name]
    assert ran.table(name, case) == sorted(case.expected)


def test_a_made_table_has_the_types_of_the_input(ran: Ran) -> None:
    found = ran.database.rows(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'no_table_yet'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert found == [("bigint",), ("bigint",), ("text",)]


def test_forms_of_one_letter_stay_apart(ran: Ran) -> None:
    assert ran.database.rows("SELECT octet_length(v) FROM control_characters WHERE id IN (5, 6) ORDER BY id") == [
        (2,),
        (3,),
    ]


# Runs that end by themselves, with exit code 0, when their sinks have as many rows as was said


TAGGED = {"tag": "text", **PEOPLE, "word": "text"}
ODD_KEY = 'o\'x "q" é 日本  b'


def tagged(tag: str, operation: str, *values: Any, word: str | None = None) -> Message:
    row = dict(zip(PEOPLE, values, strict=False)) | {"tag": tag, "word": word}
    return Message(json.dumps(row).encode(), headers=(("dbz.op", operation.encode()),))


def by_tag(topic: str, count: int, sinks: dict[str, str]) -> str:
    """A table for each tag, with options of its sink. One epoch takes all messages, so all sinks end together."""
    schema = ", ".join(f"{column}: {TYPES[kind]}" for column, kind in TAGGED.items())
    lines = [
        "sources:",
        f"  all_of_them: {{type: kafka, topic: {topic}, data_format: json, schema: {{{schema}}}, primary_key: id, "
        f"batch_size: {count}, batch_flush_interval: 60s}}",
        "transforms:",
    ]
    for tag in sinks:
        columns, key = ("word, name", "word") if tag == "odd_key" else (", ".join(PEOPLE), "id")
        sql = f"SELECT {columns} FROM all_of_them WHERE tag = '{tag}'"
        lines.append(f'  only_{tag}: {{type: sql, primary_key: {key}, sql: "{sql}"}}')
    lines.append("sinks:")
    for tag, options in sinks.items():
        more = f", batch_size: 1, batch_flush_interval: 100ms{options}"
        lines.append(f"  {tag}: {{type: postgres, from: only_{tag}, schema: public, table: {tag}{more}}}")
    return "\n".join([*lines, ""])


def test_a_run_ends_when_its_sinks_have_enough_rows_and_a_later_one_keeps_the_first_of_a_key(
    new_place: MakeWorkspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    database, topic = postgres.database(), kafka.topic()
    database.execute(f"CREATE TABLE absent {TABLE}; CREATE TABLE updated {TABLE}; CREATE TABLE removed {TABLE}")
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, **database.settings()}
    first = [
        tagged("absent", "d", 99),
        tagged("phantom", "u", 5, "phantom", 55),
        tagged("single", "c", 42, None, 7),
        tagged("kept", "c", 1, "original", 1),
    ]
    kafka.produce(topic, first)
    sinks = dict.fromkeys(("absent", "phantom", "single", "kept"), "")
    place = new_place().write(by_tag(topic, len(first), sinks))
    place.run(NUM_RECORDS_BEFORE_STOP=1, **settings).succeeded()
    assert database.rows("SELECT * FROM absent") == []
    assert database.rows("SELECT id, name, score FROM phantom") == [(5, "phantom", 55)]
    assert database.rows("SELECT id, score FROM single") == [(42, 7)]
    assert database.rows("SELECT id, name FROM kept") == [(1, "original")]

    second = [
        tagged("kept", "c", 1, "conflicting", 2),
        tagged("updated", "c", 1, "alpha", 10, True),
        tagged("updated", "u", 1, "beta", 20, False),
        tagged("removed", "c", 1),
        tagged("removed", "d", 1),
        tagged("last_one", "c", 1, "first", 1),
        tagged("last_one", "c", 1, "second", 2),
        tagged("first_one", "c", 1, "first", 1),
        tagged("first_one", "c", 1, "second", 2),
        tagged("odd_key", "c", None, "new", word=ODD_KEY),
        tagged("odd_key", "u", None, "updated", word=ODD_KEY),
    ]
    kafka.produce(topic, second)
    nothing = ", on_conflict: nothing"
    sinks = dict.fromkeys(("updated", "removed", "last_one", "odd_key"), "") | {"kept": nothing, "first_one": nothing}
    place = new_place().write(by_tag(topic, len(first) + len(second), sinks))
    place.run(NUM_RECORDS_BEFORE_STOP=2, APPLICATION_ID="another", **settings).succeeded()
    assert database.rows("SELECT id, name FROM kept") == [(1, "original")]
    assert database.rows("SELECT * FROM updated") == [(1, "beta", 20, False)]
    assert database.rows("SELECT * FROM removed") == []
    assert database.rows("SELECT id, name FROM last_one") == [(1, "second")]
    assert database.rows("SELECT id, name FROM first_one") == [(1, "first")]
    assert database.rows("SELECT name FROM odd_key WHERE word = %s", ODD_KEY) == [("updated",)]


def test_small_batches_of_a_source_are_gathered_and_all_sinks_have_them_when_the_run_ends(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    database, topic, count = postgres.database(), kafka.topic(), 50
    case = Case(VALUES, [("c", n, f"value_{n}", 1000 + n) for n in range(1, count + 1)], [])
    kafka.produce(topic, [message(case, row) for row in case.rows])
    place.write(f"""\
sources:
  rows: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64, value: string, total: int64}},
         primary_key: id, batch_size: 1}}
sinks:
  one: {{type: postgres, from: rows, schema: public, table: one, batch_size: 25, batch_flush_interval: 500ms}}
  two: {{type: postgres, from: rows, schema: public, table: two, batch_size: 25, batch_flush_interval: 500ms}}
  dropped: {{type: blackhole, from: rows}}
""")
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, **database.settings()}
    place.run(NUM_RECORDS_BEFORE_STOP=count, **settings).succeeded()
    for table in ("one", "two"):
        assert read(database, table, case) == [row[1:] for row in case.rows]


def test_a_connection_that_dies_in_silence_is_replaced_and_the_run_ends_with_all_rows(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    database, topic = postgres.database(), kafka.topic()
    rows = [("c", n, f"value_{n}", 1000 + n) for n in range(1, 11)]
    case = Case(VALUES, rows, [])
    messages = [message(case, row) for row in rows]
    case.topic = topic
    place.write(pipeline({"through": case}))
    with silent_proxy(database.host, database.port) as proxy:
        settings = database.settings() | {
            "POSTGRES_SINK__PORT": proxy.port,
            "POSTGRES_SINK__STATEMENT_TIMEOUT_SECS": 1,
            "POSTGRES_SINK__POOL_ACQUIRE_TIMEOUT_SECS": 2,
            "KAFKA_SOURCE__BROKERS": kafka.brokers,
            "NUM_RECORDS_BEFORE_STOP": len(rows),
        }
        kafka.produce(topic, messages[:5])
        running = place.start_warm(**settings)
        running.until(lambda: len(read(database, "through", case)) == 5, "the first rows")
        proxy.silence(next_with=b"INSERT INTO")
        kafka.produce(topic, messages[5:])
        finished = running.wait(90).succeeded()
    assert finished.stderr.count("did not complete within") >= 2
    assert read(database, "through", case) == [row[1:] for row in rows]
