"""Topics of many partitions need few files and threads, and messages that come before their turn little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import streamling
from streamling.connector import Room
from streamling.dev.topics import Message
from streamling.sources.kafka.consumers import POOL
from support.kafka_broker import KafkaBroker
from support.kafka_source_samples import PLENTY, eventually, everything, source

pytestmark = pytest.mark.servers

JSON = ", data_format: json, schema: {n: int64}"
PARTITIONS = 150


@pytest.fixture(scope="module")
def wide(kafka: KafkaBroker) -> str:
    """Two rows in each partition."""
    topic = kafka.topic(partitions=PARTITIONS)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % PARTITIONS) for n in range(2 * PARTITIONS)])
    return topic


def found(rows: list[Any]) -> list[Any]:
    return sorted(row["n"] for row in rows)


def usage() -> tuple[int, int]:
    """Open files and threads of this process."""
    return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))


def test_files_and_threads_do_not_grow_with_the_partitions(kafka: KafkaBroker, wide: str) -> None:
    files, threads = usage()
    with source(kafka.brokers, wide, JSON) as events:
        assert found(everything(events)) == list(range(2 * PARTITIONS))
        assert events.offer(PLENTY) is None
        kafka.produce(wide, [Message(b'{"n": 1000}', partition=n) for n in (3, 149)])
        assert found(eventually(events, 2)) == [1000, 1000]
        more_files, more_threads = usage()
    assert more_files - files < 60
    assert more_threads - threads < 40


def test_an_executor_keeps_few_consumers(kafka: KafkaBroker, wide: str) -> None:
    with source(kafka.brokers, wide, JSON) as events:
        offer = events.offer(PLENTY)
        assert offer is not None
        reader = replace(events.reader(), source_id="elsewhere")
        for slice_ in offer.slices[:10]:
            assert sum(getattr(item, "num_rows", 0) for part in slice_.parts for item in reader.read(part)) >= 2
            assert len(POOL) <= 4


@pytest.mark.parametrize("kept", [0, 100_000])
def test_messages_that_come_before_their_turn_are_fetched_again_if_they_are_too_much(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr("streamling.sources.kafka.feed._KEPT_BYTES", kept)
    topic = kafka.topic(partitions=6)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 6) for n in range(2000)])
    with source(kafka.brokers, topic, JSON) as events:
        rows: list[Any] = everything(events, Room(1200, parts=1, part_rows=1))
    assert found(rows) == list(range(2000))
    for partition in range(6):
        of_one = [row["n"] for row in rows if row["n"] % 6 == partition]
        assert of_one == sorted(of_one)


PROGRAM = """
import os, resource, sys
import confluent_kafka  # while there are files
from streamling.clients.kafka import Broker
from streamling.clients.open_files import raise_file_limit
from streamling.errors import SOURCE_FAILED, StreamlingError
from streamling.spec.settings.blocks import KafkaConnection

raise_file_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (200, 200)
connection = KafkaConnection(brokers=sys.argv[1])
while True:
    try:
        os.open(os.devnull, os.O_RDONLY)
    except OSError:
        break
try:
    Broker(connection, "any", SOURCE_FAILED).partitions()
except StreamlingError as error:
    print(error.condition.code, error.message, error.hint)
"""


def test_a_process_that_has_no_files_left_says_so(kafka: KafkaBroker, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = f"ulimit -n 200; ulimit -Sn 150; exec {sys.executable} program.py {kafka.brokers}"
    environment = {**os.environ, "PYTHONPATH": str(Path(streamling.__file__).parents[1])}
    finished = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert finished.stdout.startswith("OPEN_FILES"), finished.stderr
    assert "this process has 200 open files" in finished.stdout
    assert "ulimit -n" in finished.stdout
