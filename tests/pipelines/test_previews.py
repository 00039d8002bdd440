"""`streamling preview`: the first rows of every node, and nothing outside changes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from streamling.clients.kafka import Broker
from streamling.dev.topics import Message
from streamling.errors import SOURCE_FAILED
from streamling.spec.settings.blocks import KafkaSourceSettings
from support.harness import PATIENCE_S, Finished, Workspace
from support.http_server import Answer, recording_server
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer

pytestmark = pytest.mark.spark

NUMBERS = """\
sources:
  numbers: {type: generator, rows: 5000, columns: {id: id, name: "concat('n', id)"}}
transforms:
  rare: {type: sql, sql: "SELECT id, id * 2 AS twice FROM numbers WHERE id % 700 = 5"}
"""


def previewed(place: Workspace, *arguments: str, **settings: object) -> dict[str, Any]:
    finished = place.run("preview", "pipeline.yaml", "--format", "json", *arguments, **settings)
    report: dict[str, Any] = json.loads(finished.succeeded().stdout)
    return report


def nodes(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in report["nodes"]}


def files(place: Workspace) -> set[str]:
    names = {path.name for path in place.directory.iterdir()}
    return {name for name in names if not name.startswith(("warm-", "run-"))}


@contextmanager
def listening() -> Iterator[tuple[int, list[object]]]:
    """A port, and who has connected to it."""
    callers: list[object] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def accept() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                callers.append(address)
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], callers


def test_every_node_shows_its_columns_with_types_and_its_first_rows(place: Workspace) -> None:
    report = previewed(place.write(NUMBERS), "--rows", "3", "--seconds", "60")
    assert report["end"] == "rows"
    shown = nodes(report)
    assert [(c["name"], c["type"]) for c in shown["numbers"]["columns"]] == [
        ("id", "int64"),
        ("name", "string"),
        ("_gs_op", "string"),
    ]
    assert [row["id"] for row in shown["numbers"]["rows"]] == [0, 1, 2]
    assert shown["rare"]["rows"] == [
        {"id": 5, "twice": 10, "_gs_op": "i"},
        {"id": 705, "twice": 1410, "_gs_op": "i"},
        {"id": 1405, "twice": 2810, "_gs_op": "i"},
    ]
    assert report["problems"] == []
    assert files(place) == {"pipeline.yaml"}


def test_the_end_of_the_input_ends_a_preview(place: Workspace) -> None:
    report = previewed(place.write(NUMBERS.replace("5000", "4")))
    assert report["end"] == "input"
    assert nodes(report)["rare"]["rows"] == []
    assert nodes(report)["numbers"]["rows_read"] == 4


def test_a_source_shows_also_the_columns_that_no_node_reads(place: Workspace) -> None:
    (place.directory / "rows.csv").write_text("id,name,kind\n1,a,x\n2,b,y\n")
    place.write("""\
sources:
  lines: {type: file, path: rows.csv, format: csv, mode: {type: bounded}}
transforms:
  ids: {type: sql, sql: SELECT id FROM lines}
sinks:
  out: {type: file, from: ids, path: out, format: json}
""")
    shown = nodes(previewed(place))
    assert shown["lines"]["rows"][1] == {"id": 2, "name": "b", "kind": "y", "_gs_op": "i"}
    assert files(place) == {"pipeline.yaml", "rows.csv"}


def test_nodes_that_can_be_planned_are_shown_and_the_others_say_why(place: Workspace) -> None:
    place.write(
        NUMBERS
        + """\
  wrong: {type: sql, sql: SELECT nope FROM numbers}
  behind: {type: sql, sql: SELECT * FROM wrong}
  no_sql: {type: sql, sql: SELEC}
  round: {type: sql, sql: SELECT * FROM trip}
  trip: {type: sql, sql: SELECT * FROM round}
  lost: {type: script, from: nobody}
sinks:
  out: {type: postgress, from: nobody}
"""
    )
    report = previewed(place, "--rows", "1")
    shown = nodes(report)
    assert {name for name, node in shown.items() if node["rows"]} == {"numbers", "rare"}
    assert "nope" in shown["wrong"]["problem"]
    assert shown["behind"]["problem"] == "it needs 'wrong', which is left out"
    problems = {(p["code"], p["node"], p["line"]) for p in report["problems"]}
    assert ("SQL_UNKNOWN_COLUMN", "wrong", 5) in problems
    assert ("NODE_NOT_FOUND", "lost", 10) in problems
    assert "out" not in {node for _, node, _ in problems}


def test_errors_are_printed_as_validate_prints_them(place: Workspace) -> None:
    place.write(NUMBERS + "  wrong: {type: sql, sql: SELECT nope FROM numbers}\n")
    finished = place.run("preview", "--rows", "2").succeeded()
    assert "pipeline.yaml:5:34" in finished.stderr
    assert finished.stdout.startswith("numbers  generator source")
    assert "  id     name    _gs_op\n  int64  string  string\n  0      n0      i\n" in finished.stdout
    assert "2 nodes, 1 left out" in finished.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sources: {a: [}", "INVALID_YAML"),
        ("sources: {a: {type: nothing}}", "KIND_NOT_AVAILABLE"),
        ("sources: {}", "NOTHING_TO_DO"),
        ("transforms: {a: {type: sql, sql: SELECT 1}}", "MISSING_SECTION"),
    ],
)
def test_nothing_to_show_is_an_error(place: Workspace, text: str, message: str) -> None:
    finished = place.write(text).run("preview").failed()
    assert f"[{message}]" in finished.stderr
    report = json.loads(place.run("preview", "--format", "json").stdout)
    assert (report["end"], report["problems"][0]["code"]) == ("failed", message)


def test_wrong_nodes_and_options_are_refused(place: Workspace) -> None:
    place.write(NUMBERS)
    finished = place.run("preview", "--node", "rar").failed()
    assert "did you mean 'rare'?" in finished.stderr
    place.write(NUMBERS.replace("transforms:", "transforms"))
    finished = place.run("preview", "--node", "rare").failed()
    assert "there is no source or transform named 'rare'" in finished.stderr
    assert "'transforms' has no ':' after it" in finished.stderr, "why it is not there"
    place.write(NUMBERS)
    for wrong in (["--rows", "0"], ["--rows", "1000000000"], ["--seconds", "0"], ["--seconds", "nan"]):
        assert place.run("preview", *wrong, cold=True).code == 2
    assert "not found" in place.run("preview", "absent.yaml").failed().stderr


def test_one_node_needs_only_what_it_reads(place: Workspace) -> None:
    place.write(NUMBERS + "  wrong: {type: sql, sql: SELECT nope FROM numbers}\n")
    report = previewed(place, "--node", "Rare", "--rows", "1")
    assert [node["name"] for node in report["nodes"]] == ["rare"]
    assert report["problems"] == []


def test_a_node_that_fails_does_not_hide_the_others(place: Workspace) -> None:
    place.write(NUMBERS + "  bad: {type: sql, sql: SELECT CAST(name AS BIGINT) AS n FROM numbers}\n")
    report = previewed(place, "--rows", "2", "--seconds", "60")
    shown = nodes(report)
    assert len(shown["numbers"]["rows"]) == len(shown["rare"]["rows"]) == 2
    assert shown["bad"]["rows"] == []
    assert "n0" in shown["bad"]["problem"]
    assert shown["bad"]["problem"].startswith("sql transform 'bad': ")
    assert [p["node"] for p in report["problems"]] == ["bad"]


def test_rejected_rows_are_counted_and_not_stored(place: Workspace) -> None:
    place.write(
        NUMBERS
        + """\
  some: {type: sql, sql: "SELECT CAST(replace(name, 'n1', '1') AS BIGINT) AS n FROM numbers", on_error: dead_letter,
         dead_letter: {type: file, path: letters}}
"""
    )
    shown = nodes(previewed(place, "--rows", "2", "--seconds", "60"))
    assert [row["n"] for row in shown["some"]["rows"]] == [1, 10]
    assert shown["some"]["rows_rejected"] > 0
    assert files(place) == {"pipeline.yaml"}


def test_sinks_and_their_settings_are_never_contacted(place: Workspace) -> None:
    sinks = """\
sinks:
  table: {type: postgres, from: rare, table: t, schema: s, primary_key: id}
  house: {type: clickhouse, from: rare, table: t, primary_key: id}
  topic: {type: kafka, from: rare, topic: t, data_format: json}
  hook: {type: webhook, from: rare, url: "http://127.0.0.1:PORT/hook"}
"""
    with listening() as (port, callers):
        place.write(NUMBERS + sinks.replace("PORT", str(port)))
        report = previewed(
            place,
            *("--seconds", "60"),
            POSTGRES_SINK__HOST="127.0.0.1",
            POSTGRES_SINK__PORT=port,
            CLICKHOUSE_SINK__URL=f"http://127.0.0.1:{port}",
            KAFKA_SINK__BROKERS=f"127.0.0.1:{port}",
            STATE_BACKEND__BACKEND_TYPE="Postgres",
            STATE_BACKEND__POSTGRES__PORT=port,
            OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT=f"http://127.0.0.1:{port}/v1/metrics",
        )
        assert callers == []
    assert len(nodes(report)["rare"]["rows"]) == 8


def test_nested_values_are_json_and_long_ones_are_shortened(place: Workspace) -> None:
    row = {"id": 1, "tags": ["a", "b"], "note": "x" * 300, "at": "2026-01-31T10:00:00Z"}
    (place.directory / "rows.jsonl").write_text(json.dumps(row) + "\n")
    place.write("""\
sources:
  lines: {type: file, path: rows.jsonl, format: json, mode: {type: bounded},
          schema: {id: int64, tags: [string], note: string, at: timestamp}}
""")
    text = place.run("preview", COLUMNS=80).succeeded().stdout
    assert '["a", "b"]' in text
    assert "xxx…" in text
    assert max(map(len, text.splitlines())) <= 120


def test_numbers_keep_their_digits_and_nan_is_not_null(place: Workspace) -> None:
    place.write("""\
sources: {one: {type: generator, rows: 1}}
transforms:
  odd: {type: sql, sql: "SELECT CAST('12345678901234567890.123456789' AS DECIMAL(38,9)) AS d,
        CAST('NaN' AS DOUBLE) AS x, CAST('-Infinity' AS DOUBLE) AS y, CAST(NULL AS DOUBLE) AS z,
        9007199254740993 AS i FROM one"}
""")
    (row,) = nodes(previewed(place))["odd"]["rows"]
    assert row == {
        "d": "12345678901234567890.123456789",
        "x": "nan",
        "y": "-inf",
        "z": None,
        "i": 9007199254740993,
        "_gs_op": "i",
    }


def test_codes_of_a_terminal_do_not_reach_it(place: Workspace) -> None:
    (place.directory / "rows.csv").write_text("id\x1b[1m,name\n1,\x1b[31mred\x07\n2,\x9b2Jclear\x7f\n")
    place.write("""\
sources:
  lines: {type: file, path: rows.csv, format: csv, mode: {type: bounded}}
transforms:
  bad: {type: sql, sql: SELECT CAST(name AS BIGINT) AS n FROM lines}
""")
    text, as_json = place.run("preview"), place.run("preview", "--format", "json")
    events = place.run("preview", "--format", "events")
    assert all(line.isprintable() for line in (text.stdout + text.stderr).splitlines())
    assert all(line.isprintable() for line in (as_json.stdout + events.stdout + events.stderr).splitlines())
    rows = nodes(json.loads(as_json.stdout))["lines"]["rows"]
    assert [row["name"] for row in rows] == ["\x1b[31mred\x07", "\x9b2Jclear\x7f"]


LOOKUPS = """\
sources:
  orders: {type: generator, rows: 20, primary_key: id, columns: {id: id, code: "concat('c', id % 3)"}}
transforms:
  names: {type: lookup, path: names.csv, format: csv, primary_key: code}
  seen: {type: dynamic_table, backend_type: InMemory, backend_entity_name: seen, sql: SELECT code FROM orders}
  named: {type: sql, primary_key: id, sql: "SELECT o.id, n.name FROM orders o LEFT JOIN names n ON o.code = n.code"}
"""


def test_lookups_and_dynamic_tables_show_their_columns_and_rows(place: Workspace) -> None:
    (place.directory / "names.csv").write_text("code,name\nc0,zero\nc1,one\nc2,two\nc3,three\n")
    shown = nodes(previewed(place.write(LOOKUPS), "--rows", "3"))
    assert [(c["name"], c["type"]) for c in shown["names"]["columns"]] == [("code", "string"), ("name", "string")]
    assert shown["names"]["rows"] == [{"code": f"c{n}", "name": name} for n, name in enumerate(["zero", "one", "two"])]
    assert shown["names"]["rows_read"] == 4
    assert [c["name"] for c in shown["seen"]["columns"]] == ["value"]
    assert sorted(row["value"] for row in shown["seen"]["rows"]) == ["c0", "c1", "c2"]
    text = place.run("preview", "--rows", "3").succeeded().stdout
    assert "names  lookup transform, 3 of 4 rows\n  code    name\n  string  string\n  c0      zero\n" in text


def test_one_lookup_or_dynamic_table_can_be_shown(place: Workspace) -> None:
    (place.directory / "names.csv").write_text("code,name\nc0,zero\n")
    place.write(LOOKUPS)
    report = previewed(place, "--node", "names")
    assert [(node["name"], node["rows"]) for node in report["nodes"]] == [("names", [{"code": "c0", "name": "zero"}])]
    (seen,) = previewed(place, "--node", "seen")["nodes"]
    assert sorted(row["value"] for row in seen["rows"]) == ["c0", "c1", "c2"]


def test_a_lookup_that_cannot_be_read_says_why_and_hides_only_what_needs_it(place: Workspace) -> None:
    (place.directory / "names.csv").write_text("code,name\nc0,zero\nc0,nil\n")
    report = previewed(place.write(LOOKUPS), "--rows", "3")
    shown = nodes(report)
    assert "two rows of the lookup" in shown["names"]["problem"]
    assert shown["named"]["problem"] == "it needs 'names', which is left out"
    assert len(shown["orders"]["rows"]) == len(shown["seen"]["rows"]) == 3
    assert [p["node"] for p in report["problems"]] == ["names"]


def test_a_lookup_that_does_not_answer_is_given_up_soon(place: Workspace) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]  # closed before the preview begins
    lookup = "{type: lookup, query: SELECT code FROM names, primary_key: code, schema: {code: string, name: string}}"
    place.write(LOOKUPS.replace("{type: lookup, path: names.csv, format: csv, primary_key: code}", lookup))
    began = time.monotonic()
    shown = nodes(previewed(place, POSTGRES_SINK__HOST="127.0.0.1", POSTGRES_SINK__PORT=port))
    assert time.monotonic() - began < 40  # a run would wait for a minute
    assert shown["names"]["problem"]
    assert shown["orders"]["rows"]


def test_filling_a_dynamic_table_does_not_write_to_postgres(place: Workspace, postgres: PostgresServer) -> None:
    database = postgres.database()
    database.execute("CREATE SCHEMA streamling")
    database.execute("CREATE TABLE streamling.known (value TEXT PRIMARY KEY)")
    database.execute("INSERT INTO streamling.known VALUES ('n3')")
    place.write("""\
sources:
  numbers: {type: generator, rows: 5, columns: {id: id, name: "concat('n', id)"}}
transforms:
  known: {type: dynamic_table, backend_type: Postgres, backend_entity_name: known,
          sql: "SELECT name FROM numbers WHERE id = 1"}
  absent: {type: dynamic_table, backend_type: Postgres, backend_entity_name: absent}
  matches: {type: sql, sql: "SELECT id, dynamic_table_check('absent', name) AS a FROM numbers
            WHERE dynamic_table_check('known', name)"}
""")
    names = {"HOST": database.host, "PORT": database.port, "USER": database.user, "PASSWORD": database.password}
    named = {**names, "DB": database.name, "SSLMODE": "disable"}
    report = previewed(place, **{f"DYNAMIC_TABLE_BACKEND__POSTGRES__{name}": value for name, value in named.items()})
    assert [(row["id"], row["a"]) for row in nodes(report)["matches"]["rows"]] == [(1, False), (3, False)]
    assert [row["value"] for row in nodes(report)["known"]["rows"]] == ["n3", "n1"]
    assert (nodes(report)["absent"]["rows"], nodes(report)["absent"]["problem"]) == ([], None)
    assert database.rows("SELECT value FROM streamling.known") == [("n3",)]
    assert database.rows("SELECT to_regclass('streamling.absent')::text") == [(None,)]


TOPIC = """\
sources:
  events: {type: kafka, topic: TOPIC, data_format: json, schema: {n: int64}, MORE}
transforms:
  even: {type: sql, primary_key: n, sql: SELECT n FROM events WHERE n % 2 = 0}
sinks:
  out: {type: file, from: even, path: out, format: json}
"""


def write_topic(place: Workspace, topic: str, more: str = "primary_key: n") -> None:
    place.write(TOPIC.replace("TOPIC", topic).replace("MORE", more))


def committed(group: Consumer, topic: str, partitions: int) -> list[int]:
    try:
        places = group.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=20)
    except KafkaException:  # the first request of a group comes before its coordinator is ready
        return []
    return [place.offset for place in places]


def members(brokers: str, topic: str, group: str) -> Sequence[object]:
    return Broker(KafkaSourceSettings(brokers=brokers), topic, SOURCE_FAILED).group(group).members


@pytest.mark.servers
def test_a_topic_is_shown_from_its_beginning_and_the_preview_ends_when_it_has_caught_up(
    place: Workspace, kafka: KafkaBroker
) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(6)])
    write_topic(place, topic)
    report = previewed(place, KAFKA_SOURCE__BROKERS=kafka.brokers)
    assert report["end"] == "caught_up"
    assert sorted(row["n"] for row in nodes(report)["events"]["rows"]) == list(range(6))
    assert sorted(row["n"] for row in nodes(report)["even"]["rows"]) == [0, 2, 4]


@pytest.mark.servers
def test_a_source_that_starts_at_the_end_shows_the_newest_messages(place: Workspace, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [Message(b'{"n": %d}' % n) for n in range(250)])
    write_topic(place, topic, "primary_key: n, starting_offsets: latest, batch_size: 100000, batch_flush_interval: 1h")
    report = previewed(place, "--rows", "2", KAFKA_SOURCE__BROKERS=kafka.brokers)
    assert [row["n"] for row in nodes(report)["events"]["rows"]] == [150, 151]


@pytest.mark.servers
def test_a_preview_beside_a_run_leaves_its_group_its_offsets_and_its_state_alone(
    place: Workspace, kafka: KafkaBroker
) -> None:
    group, topic = f"g{uuid.uuid4().hex}", kafka.topic(partitions=2)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(10)])
    write_topic(place, topic)
    settings: dict[str, object] = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__CONSUMER_GROUP_ID": group}
    running = place.start(**settings)
    full = f"{group}-events"
    watch = Consumer({"bootstrap.servers": kafka.brokers, "group.id": full, "log_level": 0})
    running.until_epochs(1)
    running.until(lambda: committed(watch, topic, 2) == [5, 5], "committed offsets")
    before, state = members(kafka.brokers, topic, full), (place.directory / "state.db").read_bytes()
    report = previewed(place, **settings)
    assert len(nodes(report)["events"]["rows"]) == 10
    assert members(kafka.brokers, topic, full) == before
    assert len(before) == 1
    assert committed(watch, topic, 2) == [5, 5]
    watch.close()
    assert (place.directory / "state.db").read_bytes() == state
    running.signal(signal.SIGTERM)
    running.wait().succeeded()
    assert place.count("out", "json") == 5


def test_a_broker_that_does_not_answer_is_reported_and_other_sources_are_shown(place: Workspace) -> None:
    place.write(NUMBERS + "  other: {type: sql, sql: SELECT n FROM events}\n")
    text = (place.directory / "pipeline.yaml").read_text()
    events = "  events: {type: kafka, topic: t, data_format: json, schema: {n: int64}}\n"
    place.write(text.replace("transforms:", f"{events}transforms:"))
    report = previewed(place, "--seconds", "4", "--rows", "2", KAFKA_SOURCE__BROKERS="127.0.0.1:1")
    assert report["end"] == "time"
    shown = nodes(report)
    assert len(shown["numbers"]["rows"]) == 2
    assert shown["events"]["problem"]
    # Without a time it does not wait for long.
    report = previewed(place, "--rows", "2", KAFKA_SOURCE__BROKERS="127.0.0.1:1")
    assert report["end"] == "trouble"
    shown = nodes(report)
    assert len(shown["numbers"]["rows"]) == 2
    assert shown["events"]["problem"]
    assert [p["code"] for p in report["problems"]] == ["SOURCE_FAILED"]


def test_ctrl_c_ends_a_preview_with_what_was_seen(place: Workspace) -> None:
    place.write("sources: {ticks: {type: generator, rate: 1, columns: {id: id}}}")
    running = place.start("preview", "pipeline.yaml", "--seconds", "300", "--rows", "500", "-v")
    running.until_epochs(1)
    running.signal_group(signal.SIGINT)
    finished: Finished = running.wait().succeeded()
    assert "ticks  generator source" in finished.stdout
    assert "interrupted" in finished.stdout


def test_an_endpoint_that_does_not_answer_hides_only_its_handler(place: Workspace) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]  # closed before the preview begins
    asked = f'{{type: handler, from: numbers, url: "http://127.0.0.1:{port}/x"}}'
    place.write(NUMBERS.replace("WHERE id % 700 = 5", "") + f"  asked: {asked}\n")
    report = previewed(place, "--rows", "2", "--seconds", "3")
    shown = nodes(report)
    assert len(shown["numbers"]["rows"]) == len(shown["rare"]["rows"]) == 2
    assert "127.0.0.1" in shown["asked"]["problem"]
    assert [p["node"] for p in report["problems"]] == ["asked"]


def test_a_transform_with_effects_outside_gets_few_rows(place: Workspace) -> None:
    with recording_server(lambda request: Answer(body=request.body)) as endpoint:
        place.write(f"""\
sources:
  numbers: {{type: generator, columns: {{id: id}}}}
transforms:
  asked: {{type: handler, from: numbers, url: "{endpoint.url}/x", primary_key: id}}
  none: {{type: sql, sql: SELECT id FROM asked WHERE id < 0}}
  rare: {{type: sql, sql: SELECT id FROM numbers WHERE id % 300 = 299}}
""")
        report = previewed(place, "--rows", "3", "--seconds", "60")
        assert len(endpoint.rows) == 500
    shown = nodes(report)
    assert report["end"] == "limit"
    assert len(shown["asked"]["rows"]) == len(shown["rare"]["rows"]) == 3  # the third needs more rows than it got
    assert shown["asked"]["note"] == "a preview gives it at most 500 rows"
    assert shown["none"]["rows"] == []


def test_no_more_rows_are_sent_than_shown_if_they_are_enough(place: Workspace) -> None:
    with recording_server(lambda request: Answer(body=request.body)) as endpoint:
        place.write(f"""\
sources:
  numbers: {{type: generator, columns: {{id: id}}}}
transforms:
  asked: {{type: handler, from: numbers, url: "{endpoint.url}/x", primary_key: id}}
""")
        report = previewed(place, "--rows", "3", "--seconds", "60")
        assert (report["end"], len(endpoint.rows)) == ("rows", 3)


def test_a_preview_that_is_repeated_does_not_give_a_transform_more_rows(place: Workspace) -> None:
    with recording_server(lambda request: Answer(body=request.body)) as endpoint:
        failing = "\n".join(
            f"  bad_{n}: {{type: sql, sql: SELECT CAST(concat('n', id) AS BIGINT) AS n FROM numbers WHERE id > {n}}}"
            for n in (0, 150, 250)
        )
        place.write(f"""\
sources:
  numbers: {{type: generator, columns: {{id: id}}}}
transforms:
  asked: {{type: handler, from: numbers, url: "{endpoint.url}/x", primary_key: id}}
  none: {{type: sql, sql: SELECT id FROM asked WHERE id < 0}}
{failing}
""")
        report = previewed(place, "--rows", "3", "--seconds", "60")
        assert len(endpoint.rows) == 500
    assert len(nodes(report)["asked"]["rows"]) == 3
    assert {p["node"] for p in report["problems"]} == {"bad_0", "bad_150", "bad_250"}


def test_code_that_does_not_end_hides_only_its_node(place: Workspace) -> None:
    place.write(
        NUMBERS
        + """\
  stuck: {type: python, from: numbers, code: "import time\\n\\ndef process(row):\\n    time.sleep(60)"}
"""
    )
    report = previewed(place, "--rows", "2", "--seconds", "2")
    shown = nodes(report)
    assert len(shown["numbers"]["rows"]) == len(shown["rare"]["rows"]) == 2
    assert shown["stuck"]["problem"] == "python transform 'stuck': its code does not end"
    assert [p["code"] for p in report["problems"]] == ["NO_PROGRESS"]


QUEUE = """\
from pathlib import Path
import pyarrow as pa
from streamling.plugin import SourcePlugin, register_source

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("_gs_op", pa.string(), nullable=False)])

@register_source("acme.queue")
class Queue(SourcePlugin):
    bounded = True
    given = False

    def output_schema(self):
        return SCHEMA

    def is_running(self):
        return not self.given

    def generate_batch(self):
        self.given = True
        return pa.RecordBatch.from_pydict({"id": [1, 2], "_gs_op": ["i", "i"]}, SCHEMA)

    def process_checkpoint_finalizer(self, epoch):
        Path("acknowledged").touch()
"""


HANGING = """\
import time
import pyarrow as pa
import streamling.engine.preview.run
from streamling.plugin import SourcePlugin, TransformPlugin, register_source, register_transform

streamling.engine.preview.run._OPENING_S = 1.0
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("_gs_op", pa.string(), nullable=False)])

class Hanging:
    def output_schema(self):
        return SCHEMA

    def initialize(self):
        time.sleep(600)

@register_source("acme.source")
class Source(Hanging, SourcePlugin):
    def generate_batch(self):
        return None

@register_transform("acme.transform")
class Transform(Hanging, TransformPlugin):
    def process_batch(self, batch):
        return batch
"""


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("transforms:\n", "  stuck: {type: acme.source}\n"),
        ("  rare:", "  stuck: {type: acme.transform, from: numbers}\n"),
    ],
)
def test_a_node_that_does_not_open_hides_only_itself(place: Workspace, before: str, line: str) -> None:
    place.write(NUMBERS.replace(before, line + before), plugin=HANGING)
    finished = place.run("preview", "--format", "json", "--rows", "2", cold=True).succeeded()
    report = json.loads(finished.stdout)
    shown = nodes(report)
    assert len(shown["numbers"]["rows"]) == len(shown["rare"]["rows"]) == 2
    assert shown["stuck"]["problem"].endswith("'stuck': its code does not end")
    assert [p["code"] for p in report["problems"]] == ["NO_PROGRESS"]


def test_a_plugin_source_does_not_hear_that_rows_are_delivered(place: Workspace) -> None:
    place.write("sources: {tasks: {type: acme.queue}}\nsinks: {out: {type: blackhole, from: tasks}}", plugin=QUEUE)
    assert [row["id"] for row in nodes(previewed(place))["tasks"]["rows"]] == [1, 2]
    assert "acknowledged" not in files(place)
    place.run().succeeded()
    assert "acknowledged" in files(place)


def test_what_code_prints_is_not_part_of_the_output(place: Workspace) -> None:
    noisy = QUEUE.replace("        self.given = True", '        print("batch!", flush=True)\n        self.given = True')
    place.write(
        """\
sources: {tasks: {type: acme.queue}}
transforms:
  py: {type: python, from: tasks, primary_key: id,
       code: "def process(row):\\n    print('py', row['id'])\\n    return row"}
  js: {type: script, from: tasks, language: javascript, primary_key: id, schema: {id: int64},
       script: "function invoke(row) { console.log('js', row.id); return row; }"}
""",
        plugin=f'print("loaded!")\n{noisy}',
    )
    finished = place.run("preview", "--format", "json").succeeded()
    assert [len(node["rows"]) for node in json.loads(finished.stdout)["nodes"]] == [2, 2, 2]
    for text in ("loaded!", "batch!", "python transform 'py': py 1", "script transform 'js': js 2"):
        assert text in finished.stderr
    events = place.run("preview", "--format", "events").succeeded().stdout.splitlines()
    assert len([json.loads(line) for line in events]) == 1 + 6 + 1


def test_events_are_printed_while_rows_arrive(place: Workspace) -> None:
    finished = place.write(NUMBERS.replace("5000", "4")).run("preview", "--format", "events").succeeded()
    start, *rows, end = map(json.loads, finished.stdout.splitlines())
    assert [node["name"] for node in start["nodes"]] == ["numbers", "rare"]
    assert start["nodes"][1]["columns"][1] == {"name": "twice", "type": "int64", "nullable": False}
    assert rows == [
        {"topology_node_key": "numbers", "data": {"id": n, "name": f"n{n}", "_gs_op": "i"}} for n in range(4)
    ]
    assert end == {"event": "end", "reason": "input"}


def test_a_long_row_is_shortened_in_events(place: Workspace) -> None:
    place.write("""\
sources: {one: {type: generator, rows: 1, columns: {id: id, note: "repeat('x', 2000000)"}}}""")
    finished = place.run("preview", "--format", "events").succeeded()
    _, row, _ = map(json.loads, finished.stdout.splitlines())
    assert row["data"]["note"] == f"{'x' * 1000}... (2,000,000 bytes)"


def test_events_name_a_node_that_fails(place: Workspace) -> None:
    place.write(
        NUMBERS.replace("5000", "4") + "  bad: {type: sql, sql: SELECT CAST(name AS BIGINT) AS n FROM numbers}\n"
    )
    finished = place.run("preview", "--format", "events").succeeded()
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [line["node"] for line in lines if line.get("event") == "problem"] == ["bad"]
    assert [line["data"]["id"] for line in lines if line.get("topology_node_key") == "numbers"][-4:] == [0, 1, 2, 3]


def test_a_pipeline_can_come_from_standard_input(place: Workspace) -> None:
    place.write("sources: {of_another: {}}")
    finished = place.run("preview", "-", cold=True)
    assert "invalid YAML: the file is empty" in finished.failed().stderr
    assert "of_another" not in finished.stderr


def test_a_preview_ends_when_nothing_reads_its_events(place: Workspace) -> None:
    (place.directory / "rows.csv").write_text("id\n")  # without rows, writing cannot tell that the reader is gone
    place.write("sources: {lines: {type: file, path: rows.csv, format: csv, schema: {id: int64}}}")
    command = [sys.executable, "-m", "streamling.cli.main", "preview", "--format", "events"]
    with subprocess.Popen(command, cwd=place.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert b"start" in process.stdout.readline()
        process.stdout.close()
        process.wait(PATIENCE_S)
        assert process.stderr
        assert b"Traceback" not in process.stderr.read()
