"""Avro topics to tables and to the screen: numbers of any size, several sinks of one source, and a query that keeps
nothing. One process reads all of them, with its positions in Postgres, and is killed."""

from __future__ import annotations

import decimal
import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from streamling.dev.topics import Message
from support.avro_frames import framed
from support.harness import MakeWorkspace, Row, Workspace, printed
from support.kafka_broker import KafkaBroker
from support.postgres_server import Database, PostgresServer
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]


def number(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def nested() -> dict[str, Any]:
    fields = [
        {"name": "one", "type": number(100, 18)},
        {"name": "many", "type": {"type": "array", "items": number(120, 20)}},
    ]
    return {"type": "record", "name": "Nested", "fields": fields}


LARGE = Decimal(f"-{'1234567890' * 10}.{'0987654321' * 2}")
INTEGERS = [12345, 0, 2**256 - 1]
AMOUNTS = [Decimal(text) for text in ("1.234567890123456789", "5", "-3", "0", "1e-18", "2e-18", "200")]
PRINTED = [
    "1.234567890123456789",
    "5.000000000000000000",
    "-3.000000000000000000",
    "0",
    "0.000000000000000001",
    "0.000000000000000002",
    "200.000000000000000000",
]
NUMBERS: dict[str, Any] = {
    "small": number(10, 10),
    "below": number(38, 2),
    "wide": number(60, 30),
    "large": ["null", number(120, 20)],
    "inside": nested(),
}
VALUES: list[Row] = [
    {
        "small": Decimal("0.1234567890"),
        "below": Decimal(f"-{'9' * 36}.99"),
        "wide": Decimal(f"-{'7' * 30}.{'0' * 29}1"),
        "large": LARGE,
        "inside": {"one": Decimal(f"-{'8' * 82}.{'5' * 18}"), "many": [LARGE, Decimal(0), Decimal("0.5")]},
    },
    {
        "small": Decimal("-0.0000000001"),
        "below": Decimal("0"),
        "wide": Decimal("2.5"),
        "large": None,
        "inside": {"one": Decimal("1e-18"), "many": []},
    },
]
SQL = {
    "texts": "SELECT * EXCEPT (amount), CAST(amount AS TEXT) AS amount FROM integers",
    "between_itself": "SELECT id, amount, 'between_itself' AS rule FROM amounts WHERE amount BETWEEN amount AND amount",
    "in_itself": "SELECT id, amount, 'in_itself' AS rule FROM amounts WHERE amount IN (amount)",
    "not_null": "SELECT id, amount, 'not_null' AS rule FROM amounts WHERE amount IS NOT NULL",
    "only_null": "SELECT id, amount, 'only_null' AS rule FROM amounts WHERE amount IS NULL",
    "between_integers": "SELECT id, amount, 'between_integers' AS rule FROM amounts WHERE amount BETWEEN 0 AND 100",
    "computed": "SELECT id, coalesce(large, 0) AS filled, coalesce(large, wide, below) AS first, "
    "CASE WHEN wide > 1 THEN wide WHEN wide <= -1 THEN below ELSE 0 END AS chosen, "
    "CAST(wide AS DECIMAL(40, 0)) AS rounded, CAST(wide AS DECIMAL(38, 1)) AS narrow, "
    "CAST(small AS DECIMAL(100, 50)) AS longer, CAST(below AS TEXT) AS spelled, "
    "CAST('0.5' AS DECIMAL(80, 40)) = '0.50' AND large <> 0 AS compared FROM numbers",
    "kept": "SELECT id, [id, timestamp] AS both FROM idle WHERE id > 1000000",
    "unnested": "SELECT id, unnest(both) AS one FROM kept",
}
TABLES = {
    "texts": "texts",
    "numbers": "numbers",
    "documents": "documents",
    "computed": "computed",
    "first": "many",
    "second": "many",
    "nothing": "unnested",
}
PRINTS = ("between_itself", "in_itself", "not_null", "only_null", "between_integers")
DOCUMENTS: list[Row] = [
    {"nested": {"key": f"k{n}", "value": n}, "tags": [f"a{n}", 'b "é"'], "note": f"n{n}"} for n in range(1, 11)
]
ITV: dict[str, Any] = {"value": "string", "timestamp": "long"}


def itv(count: int) -> list[Row]:
    return [{"value": f"value_{n}", "timestamp": 1000 + n} for n in range(1, count + 1)]


@dataclass(frozen=True)
class Topic:
    fields: dict[str, Any]
    rows: Sequence[Row]
    partitions: int = 1
    options: str = ""


TOPICS = {
    "integers": Topic({"amount": number(78, 0)}, [{"amount": Decimal(n)} for n in INTEGERS]),
    "amounts": Topic({"amount": number(100, 18)}, [{"amount": amount} for amount in AMOUNTS]),
    "numbers": Topic(NUMBERS, VALUES),
    "many": Topic(ITV, itv(100), partitions=4, options=", parallelism: 2"),
    "documents": Topic(
        {
            "nested": {
                "type": "record",
                "name": "Pair",
                "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "int"}],
            },
            "tags": {"type": "array", "items": "string"},
            "note": "string",
        },
        DOCUMENTS,
    ),
    "idle": Topic(ITV, itv(50)),
}


def pipeline(names: dict[str, str]) -> str:
    lines = ["sources:"]
    for name, topic in TOPICS.items():
        lines.append(f"  {name}: {{type: kafka, topic: {names[name]}, primary_key: id{topic.options}}}")
    lines.append("transforms:")
    for name, sql in SQL.items():
        lines.append(f"  {name}: {{type: sql, primary_key: id, sql: {json.dumps(sql)}}}")
    lines.append("sinks:")
    for table, node in TABLES.items():
        lines.append(f"  to_{table}: {{type: postgres, from: {node}, schema: public, table: {table}}}")
    lines += [f"  show_{name}: {{type: print, from: {name}}}" for name in PRINTS]
    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class Ran:
    place: Workspace
    settings: dict[str, object]
    database: Database
    topics: dict[str, str]
    shown: list[Row]


@pytest.fixture(scope="module")
def ran(new_place: MakeWorkspace, kafka: KafkaBroker, schema_registry: SchemaRegistry, postgres: PostgresServer) -> Ran:
    """Killed as soon as every row is accounted for, and nothing cleaned up.

    The last topic gets its rows late, for an epoch that has none of the other sources.
    """
    database, place = postgres.database(), new_place()
    topics = {name: kafka.topic(name, partitions=topic.partitions) for name, topic in TOPICS.items()}
    messages = {name: encoded(schema_registry, topics[name], topic) for name, topic in TOPICS.items()}
    settings = {
        "KAFKA_SOURCE__BROKERS": kafka.brokers,
        "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url,
        "CHECKPOINT_INTERVAL_SEC": 1,
        **database.settings(),
        **database.state_settings(),
    }
    *others, last = TOPICS
    for name in others:
        kafka.produce(topics[name], messages[name])
    child = place.write(pipeline(topics)).start(**settings)
    child.until(lambda: sum(offsets(database).values()) == sum(len(messages[n]) for n in others), "most messages")
    kafka.produce(topics[last], messages[last])
    child.until(lambda: sum(offsets(database).values()) == sum(map(len, messages.values())), "all messages")
    child.signal(signal.SIGKILL)
    child.process.wait(10)
    child.assert_alone()
    return Ran(place, settings, database, topics, [row for *_, row in printed(child.stdout)])


def encoded(registry: SchemaRegistry, topic: str, content: Topic) -> list[Message]:
    fields = [{"name": "id", "type": "long"}, *({"name": n, "type": t} for n, t in content.fields.items())]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    id_ = registry.register(f"{topic}-value", schema)
    with decimal.localcontext(prec=200):
        return [framed(id_, schema, {"id": n, **row}, "c", b"%d" % n) for n, row in enumerate(content.rows, 1)]


def offsets(database: Database) -> dict[str, int]:
    """How far every partition has got; nothing before there is a state."""
    if database.rows("SELECT to_regclass('streamling.state') IS NULL") == [(True,)]:
        return {}
    found = database.rows("SELECT key, (data ->> 'offset')::int FROM streamling.state WHERE data ? 'offset'")
    return dict(found)


def shown(ran: Ran, rule: str) -> list[str]:
    return [row["amount"] for row in ran.shown if row["rule"] == rule]


def test_wide_integers_become_texts_digit_by_digit(ran: Ran) -> None:
    assert ran.database.rows("SELECT id, amount FROM texts ORDER BY id") == [
        (n, str(value)) for n, value in enumerate(INTEGERS, 1)
    ]


def test_wide_decimals_are_printed_in_full_and_equal_themselves(ran: Ran) -> None:
    assert shown(ran, "not_null") == PRINTED
    assert shown(ran, "between_itself") == PRINTED
    assert shown(ran, "in_itself") == PRINTED
    assert shown(ran, "only_null") == []


def test_wide_decimals_are_compared_with_integers_by_value(ran: Ran) -> None:
    assert shown(ran, "between_integers") == [PRINTED[place] for place in (0, 1, 3, 4, 5)]


def test_decimals_of_any_size_are_exact_in_their_columns(ran: Ran) -> None:
    types = ran.database.rows(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'numbers'::regclass AND attnum > 1 ORDER BY attnum"
    )
    assert types == [
        ("small", "numeric(10,10)"),
        ("below", "numeric(38,2)"),
        ("wide", "numeric(60,30)"),
        ("large", "numeric(120,20)"),
        ("inside", "jsonb"),
    ]
    found = ran.database.rows("SELECT small, below, wide, large FROM numbers ORDER BY id")
    assert found == [tuple(row[name] for name in ("small", "below", "wide", "large")) for row in VALUES]


def test_decimals_of_any_size_are_exact_inside_of_json(ran: Ran) -> None:
    found = ran.database.rows("SELECT inside ->> 'one', inside -> 'many' FROM numbers ORDER BY id")
    assert found == [
        (f"-{'8' * 82}.{'5' * 18}", [f"{LARGE:f}", "0", f"0.5{'0' * 19}"]),
        ("0.000000000000000001", []),
    ]


def test_records_and_arrays_become_json_columns(ran: Ran) -> None:
    types = ran.database.rows(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'documents'::regclass AND attnum > 1 ORDER BY attnum"
    )
    assert types == [("jsonb",), ("jsonb",), ("text",)]
    found = ran.database.rows("SELECT nested, tags, note FROM documents ORDER BY id")
    assert found == [tuple(row.values()) for row in DOCUMENTS]


def test_wide_decimals_are_chosen_cast_and_compared_exactly(ran: Ran) -> None:
    found = ran.database.rows(
        "SELECT filled, first, chosen, rounded, narrow, longer, spelled, compared FROM computed ORDER BY id"
    )
    below, small = VALUES[0]["below"], VALUES[0]["small"]
    assert found == [
        (LARGE, LARGE, below, Decimal("-" + "7" * 30), Decimal(f"-{'7' * 30}.0"), small, f"{below:f}", True),
        (0, Decimal("2.5"), Decimal("2.5"), 2, Decimal("2.5"), Decimal("-1e-10"), "0.00", None),
    ]


def test_two_sinks_of_a_source_with_many_partitions_both_have_every_row(ran: Ran) -> None:
    expected = [(n, row["value"], row["timestamp"]) for n, row in enumerate(itv(100), 1)]
    for table in ("first", "second"):
        assert ran.database.rows(f"SELECT id, value, timestamp FROM {table} ORDER BY id") == expected
    partitions = {key: at for key, at in offsets(ran.database).items() if key.startswith("many:")}
    assert len(partitions) == 4
    assert all(partitions.values()), "a partition without rows proves nothing"


def test_positions_move_although_no_row_survives_and_the_process_is_killed(ran: Ran) -> None:
    assert offsets(ran.database)[f"idle:{ran.topics['idle']}:0"] == 50
    assert ran.database.rows("SELECT count(*) FROM nothing") == [(0,)]


def test_a_float_beside_a_wide_decimal_is_refused_at_the_start(ran: Ran, place: Workspace) -> None:
    place.write(f"""\
sources: {{amounts: {{type: kafka, topic: {ran.topics["amounts"]}, primary_key: id}}}}
transforms: {{some: {{type: sql, primary_key: id, sql: SELECT id FROM amounts WHERE amount > 1.5}}}}
sinks: {{out: {{type: blackhole, from: some}}}}
""")
    finished = place.run(**ran.settings).failed()
    assert "float64 is not compatible with a number of more than 38 digits" in finished.stderr
    assert "write a number with decimal places as text: '1.5'" in finished.stderr
