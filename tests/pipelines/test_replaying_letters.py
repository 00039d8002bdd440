"""Dead letters that are replayed: their rows arrive once, they are marked, and what fails again stays open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamling.dev.topics import Message
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.otlp_receiver import http_receiver
from support.postgres_server import Database, PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.servers]

PIPELINE = """\
sources:
  orders:
    type: kafka
    topic: {topic}
    data_format: json
    schema: {{id: int64, text: string}}
    primary_key: id
    include_metadata: true
    {letters}
transforms:
  parsed:
    type: sql
    primary_key: id
    sql: |
      SELECT id, CAST(text AS BIGINT) AS n, now() AS seen, __kafka_offset AS place, __kafka_timestamp AS sent
      FROM orders
    {letters}
sinks:
  table:
    type: postgres
    from: parsed
    schema: public
    table: numbers
    {letters}
"""
LETTERS = "on_error: dead_letter\n    dead_letter: {{type: {}}}"
COLUMNS = (
    "id bigint PRIMARY KEY, n bigint CONSTRAINT small CHECK (n < 10000), seen timestamptz, place bigint, sent timestamp"
)


class Place:
    """A pipeline from a topic to a table, and what it leaves."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, database: Database) -> None:
        self._place = place
        self._kafka = kafka
        self.settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, **database.settings()}
        self.topic = kafka.topic()
        self.database = database
        database.execute(f"CREATE TABLE numbers ({COLUMNS})")
        self.write(PIPELINE)

    def write(self, pipeline: str) -> None:
        self._place.write(pipeline.format(topic=self.topic, letters=LETTERS.format("postgres")))

    def produce(self, *messages: Message) -> None:
        self._kafka.produce(self.topic, list(messages))

    def run(self, rows: int) -> None:
        self._place.run(**self.settings, NUM_RECORDS_BEFORE_STOP=rows).succeeded()

    def dlq(self, *arguments: str, code: int = 0) -> str:
        ended = self._place.run("dlq", *arguments, **self.settings)
        assert ended.code == code, ended.stderr
        return ended.stdout + ended.stderr

    def letters(self, status: str = "open") -> list[dict[str, Any]]:
        listed = self.dlq("list", "--status", status, "--format", "json")
        return [json.loads(line) for line in listed.splitlines()]

    def whole(self, letter: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.dlq("show", letter["id"]))
        return shown

    def positions(self) -> dict[str, Any]:
        return {key: value for key, value in self._place.state().items() if not key.startswith("__")}


@pytest.fixture
def here(place: Workspace, kafka: KafkaBroker, postgres: PostgresServer) -> Place:
    return Place(place, kafka, postgres.database())


def message(id_: int, text: str) -> Message:
    return Message(json.dumps({"id": id_, "text": text}).encode())


def test_letters_of_a_transform_and_of_a_sink(here: Place) -> None:
    """Row 4 does not cast; row 7 is too large for its column until the constraint is dropped."""
    here.produce(*(message(n, "four" if n == 4 else str(10**6 if n == 7 else n)) for n in range(1, 11)))
    here.run(8)
    assert len(here.database.rows("SELECT id FROM numbers")) == 8
    cast, too_large = sorted(here.letters(), key=lambda letter: str(letter["stage"]))
    assert (cast["stage"], too_large["stage"]) == ("transform", "write")
    positions = here.positions()
    place = {"node": "orders", "topic": here.topic, "partition": 0}
    assert (cast["source"], too_large["source"]) == ({**place, "offset": 3}, {**place, "offset": 6})

    told = here.dlq("replay", cast["id"], too_large["id"], code=1)
    assert "a replayed row may overwrite a newer row" in told
    assert "2 letters failed again, still open" in told
    again = {letter["id"]: letter for letter in here.letters()}
    assert again.keys() == {cast["id"], too_large["id"]}
    assert again[cast["id"]]["timestamp"] > cast["timestamp"]
    assert again[cast["id"]]["now_us"] == cast["now_us"]

    here.database.execute("ALTER TABLE numbers DROP CONSTRAINT small")
    assert "replayed 1 letter\n" in here.dlq("replay", too_large["id"])
    assert here.dlq("discard", cast["id"], "--yes") == "discarded 1 letter\n"
    assert here.letters() == []
    assert [letter["id"] for letter in here.letters("replayed")] == [too_large["id"]]
    assert [letter["id"] for letter in here.letters("discarded")] == [cast["id"]]
    assert here.database.rows("SELECT n, count(*) FROM numbers WHERE id = 7 GROUP BY 1") == [(10**6, 1)]
    assert here.positions() == positions


def test_metrics_of_a_replay_are_not_those_of_the_pipeline_beside_which_it_runs(here: Place) -> None:
    here.produce(message(1, "1"), message(2, "two"))
    here.run(1)
    here.write(PIPELINE.replace("CAST(text AS BIGINT)", "CAST(replace(text, 'two', '2') AS BIGINT)"))
    with http_receiver() as receiver:
        here.settings["OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT"] = receiver.endpoint
        here.dlq("replay", "--reason", "cast_error")
        found = receiver.series("streamling_output_rows", id="table")
        assert [(one.value, one.resource["service.instance.id"]) for one in found] == [(1, "test_app/replay")]
        coordinator = receiver.series("streamling_checkpoint_epochs_succeeded")
        assert [one.labels["service_instance_id"] for one in coordinator] == ["test_app/replay"]


def test_a_corrected_pipeline_computes_a_letter_with_the_time_of_its_epoch(here: Place) -> None:
    here.produce(message(1, "1"), message(2, "two"), message(3, "99999"))
    here.run(1)
    here.write(PIPELINE.replace("CAST(text AS BIGINT)", "CAST(replace(text, 'two', '2') AS BIGINT)"))
    told = here.dlq("replay", "--reason", "cast_error")
    assert "replayed 1 letter" in told
    rows = here.database.rows("SELECT id, n, seen = min(seen) OVER (), place, sent IS NULL FROM numbers ORDER BY id")
    assert rows == [(1, 1, True, 0, False), (2, 2, True, 1, False)]


def test_a_message_is_decoded_again_and_a_row_that_a_sink_then_rejects_is_a_new_letter(here: Place) -> None:
    bad = (
        Message(b'{"id": 1, "text": "1"}', headers=(("dbz.op", b"u"),)),
        Message(b'{"id": "2", "text": "2"}'),
        Message(b'{"id": "3", "text": "99999"}'),
        Message(b'{"id": 4, "text": "4"}', headers=(("dbz.op", b"x"),)),
    )
    here.produce(*bad)
    here.run(1)
    assert {letter["reason_code"] for letter in here.letters()} == {"schema_mismatch", "unknown_operation"}
    here.write(PIPELINE.replace("id: int64", "id: string").replace("SELECT id", "SELECT CAST(id AS BIGINT) AS id"))
    told = here.dlq("replay", "--node", "orders", code=1)
    assert "replayed 2 letters\n" in told
    assert "1 letter failed again, still open" in told
    assert "1 row rejected by a later node" in told
    rows = here.database.rows("SELECT id, n, place, sent IS NULL FROM numbers ORDER BY id")
    assert rows == [(1, 1, 0, False), (2, 2, 1, False)]
    assert sorted((letter["node"], letter["reason_code"]) for letter in here.letters()) == [
        ("orders", "unknown_operation"),
        ("table", "constraint_violation"),
    ]
    (new,) = (letter for letter in here.letters() if letter["node"] == "table")
    assert (new["source"]["node"], new["source"]["offset"]) == ("orders", 2)


def test_rows_behind_a_filter_are_found_in_their_topic(here: Place) -> None:
    """The query leaves rows out, so the number of a row at the sink is not its number in the topic."""
    here.write(PIPELINE.replace("FROM orders", "FROM orders WHERE id % 3 = 0"))
    texts = {n: "four" if n % 90 == 15 else str(99999 if n % 15 == 0 else n) for n in range(900)}
    here.produce(Message(b"broken"), *(message(n, text) for n, text in texts.items()))
    here.run(240)
    exported = map(json.loads, here.dlq("export").splitlines())
    letters = [letter for letter in exported if letter["node"] != "orders"]
    assert sum(letter["stage"] == "transform" for letter in letters) == 10
    places = {letter["row"]["id"]: letter["source"]["offset"] for letter in letters}
    assert places == {n: n + 1 for n in range(0, 900, 15)}


def test_rows_that_a_query_has_made_of_one_are_found_in_their_topic(here: Place) -> None:
    query = (
        "SELECT CAST(v AS BIGINT) AS id, CAST(v AS BIGINT) AS n, now() AS seen, place, sent\n      FROM ({}) AS items"
    )
    items = "SELECT unnest(string_to_array(text, ',')) AS v, __kafka_offset AS place, __kafka_timestamp AS sent"
    old = PIPELINE[PIPELINE.index("SELECT id") : PIPELINE.index("FROM orders") + len("FROM orders")]
    here.write(PIPELINE.replace(old, query.format(f"{items} FROM orders WHERE id % 2 = 0")))
    here.produce(*(message(n, f"{n},{n + 1000},{n + 10_000},{n + 20_000}") for n in range(80)))
    here.run(80)
    letters = list(map(json.loads, here.dlq("export").splitlines()))
    places = {letter["row"]["id"]: letter["source"]["offset"] for letter in letters}
    assert places == {n + more: n for n in range(0, 80, 2) for more in (10_000, 20_000)}
