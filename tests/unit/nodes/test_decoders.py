"""Payloads of dead letters are decoded as the readers would decode them now."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from streamling.connector import BadRow
from streamling.plan.types import INT64, OPERATION_FIELD, STRING, Field, Schema
from streamling.sources.file.decoder import FileDecoder
from streamling.sources.kafka import METADATA
from streamling.sources.kafka.decoder import KafkaDecoder
from streamling.sources.kafka.payload import DeclaredPayload
from streamling.sources.kafka.reader import KafkaReader
from streamling.spec.settings.blocks import KafkaConnection

N = Field("n", INT64)


def flat(items: Iterable[Any]) -> list[Any]:
    return [
        row for item in items for row in ([item] if isinstance(item, BadRow) else getattr(item, "to_pylist", list)())
    ]


def kafka_decoder(tombstones: str = "error") -> KafkaDecoder:
    columns = Schema((N, *METADATA, OPERATION_FIELD))
    connection = KafkaConnection(brokers="localhost:1")
    reader = KafkaReader("orders", "t", "g", connection, DeclaredPayload((N,)), columns, True, tombstones, ("n",))
    return pickle.loads(pickle.dumps(KafkaDecoder(reader)))  # type: ignore[no-any-return]


def bad(raw: bytes | None, **place: Any) -> BadRow:
    place = {"topic": "t", "partition": 3, "offset": 7, "timestamp": 1_700_000_000_000} | place
    return BadRow("old", "old", place, raw=raw, raw_key=b'{"n": 8}', headers=(("dbz.op", b"u"),))


def test_a_message_has_its_place_time_and_operation() -> None:
    (row,) = flat(kafka_decoder().decode([bad(b'{"n": 1}')]))
    time = row.pop("__kafka_timestamp")
    assert row == {"n": 1, "__kafka_partition": 3, "__kafka_offset": 7, "_gs_op": "u"}
    assert time.isoformat() == "2023-11-14T22:13:20"


def test_a_message_that_is_still_bad_has_the_new_reason() -> None:
    (still,) = flat(kafka_decoder().decode([bad(b'{"n": "x"}')]))
    assert (still.reason, still.source["offset"]) == ("schema_mismatch", 7)
    (tombstone,) = flat(kafka_decoder().decode([bad(None)]))
    assert tombstone.reason == "tombstone"
    (deleted,) = flat(kafka_decoder("delete").decode([bad(None)]))
    assert (deleted["n"], deleted["_gs_op"]) == (8, "d")


def test_a_letter_without_the_time_of_its_message_is_not_given_another_one() -> None:
    without = bad(b'{"n": 1}')
    (refused,) = flat(kafka_decoder().decode([BadRow("o", "o", {"offset": 1}, raw=without.raw)]))
    assert "without the timestamp of its message" in refused.message


@pytest.mark.parametrize(("format_", "heading", "raw"), [("csv", "m,n\n", b"x,1"), ("jsonl", "", b'{"n": 1}')])
def test_a_line_has_the_partitions_of_its_directory(tmp_path: Path, format_: str, heading: str, raw: bytes) -> None:
    file = tmp_path / "day=mon" / f"a.{format_}"
    file.parent.mkdir()
    file.write_text(heading)
    columns = Schema((N, Field("day", STRING, nullable=False), OPERATION_FIELD))
    decoder = FileDecoder("lines", str(tmp_path), format_, columns)
    rows = [BadRow("o", "o", {"file": str(file), "row": 5}, raw=line) for line in (raw, b"{", raw)]
    first, still, last = flat(decoder.decode(rows))
    assert first == last == {"n": 1, "day": "mon", "_gs_op": "i"}
    assert still.source == {"file": str(file), "row": 5}


def test_a_line_of_a_csv_file_that_is_gone_has_no_columns(tmp_path: Path) -> None:
    decoder = FileDecoder("lines", str(tmp_path), "csv", Schema((N, OPERATION_FIELD)))
    (refused,) = flat(decoder.decode([BadRow("o", "o", {"file": str(tmp_path / "a.csv"), "row": 1}, raw=b"1")]))
    assert "whose header has the names of the columns, is gone" in refused.message
