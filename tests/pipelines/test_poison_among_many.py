"""Bad messages of many kinds, and rows that SQL cannot compute, in a backlog of forty thousand messages.

Every good row arrives once, every bad one is a letter with its offset and reason, and what a correction makes good is
replayed once.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from streamling.dev.topics import Message
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.servers]

GOOD, OF_EACH_KIND, PARTITIONS = 40_000, 10, 4
PIPELINE = """\
sources:
  orders:
    type: kafka
    topic: {topic}
    data_format: json
    schema: {{id: int64, amount: {amount}, text: string}}
    include_metadata: true
    tombstones: {tombstones}
    on_error: dead_letter
    dead_letter: {{type: postgres}}
transforms:
  computed:
    type: sql
    primary_key: "partition, place"
    sql: |
      SELECT id, {computed} AS computed, __kafka_partition AS partition, __kafka_offset AS place FROM orders
    on_error: dead_letter
    dead_letter: {{type: postgres}}
sinks:
  table: {{type: postgres, from: computed, schema: public, table: computed}}
"""
# The trigger counts what is written: a row that is written twice is in the table once.
TABLE = """\
CREATE TABLE computed (
    id bigint, computed bigint, partition int, place bigint, writes int DEFAULT 0, PRIMARY KEY (partition, place));
CREATE FUNCTION count_writes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.writes := CASE WHEN TG_OP = 'INSERT' THEN 1 ELSE OLD.writes + 1 END; RETURN NEW;
END $$;
CREATE TRIGGER counted BEFORE INSERT OR UPDATE ON computed FOR EACH ROW EXECUTE FUNCTION count_writes();
"""
AS_IT_WAS = {
    "amount": "int64",
    "tombstones": "error",
    "computed": "CAST(text AS BIGINT) * 1000000000 / amount",
}
COMPUTABLE = "TRY_CAST(text AS BIGINT) % 1000 / NULLIF(TRY_CAST(amount AS BIGINT), 0)"
CORRECTED_QUERY = {**AS_IT_WAS, "computed": COMPUTABLE}
CORRECTED_SOURCE = {"amount": "string", "tombstones": "skip", "computed": COMPUTABLE}


def row(id_: int, amount: object = 7, text: str = "12") -> bytes:
    return json.dumps({"id": id_, "amount": amount, "text": text}).encode()


BAD_MESSAGES: dict[str, tuple[Callable[[int], Message], str]] = {
    "cut short": (lambda n: Message(row(n)[:-2]), "decode_error"),
    "empty": (lambda n: Message(b""), "tombstone"),
    "a list": (lambda n: Message(b"[%d]" % n), "decode_error"),
    "not UTF-8": (lambda n: Message(row(n).replace(b"12", b"\xff\xfe")), "decode_error"),
    "two objects": (lambda n: Message(row(n) + row(n)), "decode_error"),
    "text instead of a number": (lambda n: Message(row(n, "many")), "schema_mismatch"),
    "a number out of range": (lambda n: Message(row(n, 10**30)), "schema_mismatch"),
    "an object instead of a number": (lambda n: Message(row(n, {"a": 1})), "schema_mismatch"),
    "unknown operation": (lambda n: Message(row(n), headers=(("dbz.op", b"x"),)), "unknown_operation"),
    "tombstone": (lambda n: Message(None, b"%d" % n), "tombstone"),
}
BAD_ROWS: dict[str, tuple[Callable[[int], Message], str]] = {
    "a cast": (lambda n: Message(row(n, text="twelve")), "cast_error"),
    "an empty text": (lambda n: Message(row(n, text="")), "cast_error"),
    "an overflow": (lambda n: Message(row(n, text=str(2**62))), "arithmetic_error"),
    "a division by zero": (lambda n: Message(row(n, 0)), "arithmetic_error"),
}
# What the corrected file decodes: an amount of text, or an object. It skips tombstones, which is a result too.
SKIPPED = {"tombstone", "empty"}
MENDED = {"text instead of a number", "an object instead of a number", *SKIPPED, *BAD_ROWS}


def shuffled_messages() -> tuple[list[Message], dict[tuple[int, int], tuple[str, str]]]:
    """The messages by partitions in turn, and the bad ones: partition and offset, kind and reason."""
    kinds: list[tuple[str, Callable[[int], Message], str] | None] = [None] * GOOD
    for name, (make, reason) in BAD_MESSAGES.items():
        kinds += [(name, make, reason)] * OF_EACH_KIND
    for name, (make, reason) in BAD_ROWS.items():
        kinds += [(name, make, reason)] * (OF_EACH_KIND // 2)
    random.Random(5).shuffle(kinds)
    messages: list[Message] = []
    bad: dict[tuple[int, int], tuple[str, str]] = {}
    for n, kind in enumerate(kinds):
        partition, offset = n % PARTITIONS, n // PARTITIONS
        message = Message(row(n)) if kind is None else kind[1](n)
        messages.append(Message(message.value, message.key, message.headers, partition=partition))
        if kind is not None:
            bad[partition, offset] = kind[0], kind[2]
    return messages, bad


def test_good_rows_arrive_once_bad_ones_are_letters_and_corrected_ones_are_replayed_once(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    topic, database = kafka.topic(partitions=PARTITIONS), postgres.database()
    messages, bad = shuffled_messages()
    kafka.produce(topic, messages)
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, **database.settings()}
    database.execute(TABLE)

    def count(sql: str = "count(*)") -> Any:
        return database.rows(f"SELECT {sql} FROM computed")[0][0]

    def letters(status: str) -> dict[tuple[int, int], dict[str, Any]]:
        listed = place.run("dlq", "list", "--status", status, "--format", "json", **settings).succeeded().stdout
        found = [json.loads(line) for line in listed.splitlines()]
        by_place = {(letter["source"]["partition"], letter["source"]["offset"]): letter for letter in found}
        assert len(by_place) == len(found)
        return by_place

    place.write(PIPELINE.format(topic=topic, **AS_IT_WAS))
    place.run(**settings, NUM_RECORDS_BEFORE_STOP=GOOD).succeeded()
    assert (count(), count("sum(writes)")) == (GOOD, GOOD)
    opened = letters("open")
    assert {at: letter["reason_code"] for at, letter in opened.items()} == {at: why for at, (_, why) in bad.items()}
    stages = Counter(letter["stage"] for letter in opened.values())
    assert stages == {"decode": 10 * OF_EACH_KIND, "transform": 2 * OF_EACH_KIND}

    def replay(node: str) -> int:
        return place.run("dlq", "replay", "--all", "--node", node, **settings).code

    place.write(PIPELINE.format(topic=topic, **CORRECTED_QUERY))
    assert replay("computed") == 0
    place.write(PIPELINE.format(topic=topic, **CORRECTED_SOURCE))
    mended = {at for at, (kind, _) in bad.items() if kind in MENDED}
    rows = GOOD + sum(1 for at in mended if bad[at][0] not in SKIPPED)
    for _ in range(2):  # the second time there is only what cannot be mended
        assert replay("orders") == 1
        assert letters("replayed").keys() == mended
        assert letters("open").keys() == bad.keys() - mended
        assert (count(), count("sum(writes)")) == (rows, rows)
