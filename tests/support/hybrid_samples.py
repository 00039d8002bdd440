"""A topic that another program copies into a ClickHouse table, with the offsets of the copy."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamling.dev.topics import Message
from support.avro_frames import framed
from support.clickhouse_server import ClickHouseServer
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

COLUMNS = "block Int64, id String, data String, timestamp Int64, is_deleted UInt8"
FIELDS = {"block": "long", "id": "string", "data": "string", "timestamp": "long"}


class History:
    """Rows are numbers: row n is block n. `copy` is what the other program does."""

    def __init__(
        self,
        clickhouse: ClickHouseServer,
        kafka: KafkaBroker,
        registry: SchemaRegistry,
        *,
        partitions: int = 1,
        columns: str = COLUMNS,
        order: str = "(block, id)",
        fields: dict[str, Any] | None = None,
        offsets: str | None = "topic String, partition Int32, offset UInt64",
    ) -> None:
        self.clickhouse, self.kafka, self.registry = clickhouse, kafka, registry
        self.database = clickhouse.database()
        self.topic = kafka.topic("blocks", partitions=partitions)
        self.schema = json.dumps(
            {
                "type": "record",
                "name": "Block",
                "fields": [{"name": n, "type": t} for n, t in (fields or FIELDS).items()],
            }
        )
        self.schema_id = registry.register(f"{self.topic}-value", self.schema)
        self.copied = 0
        self.table("blocks", columns, order)
        if offsets is not None:
            self.execute(f"CREATE TABLE kafka_offsets ({offsets}) ENGINE = MergeTree ORDER BY topic")

    def table(self, name: str, columns: str = COLUMNS, order: str = "(block, id)") -> None:
        self.execute(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY {order}")

    def execute(self, query: str) -> str:
        return self.clickhouse.execute(query, database=self.database)

    def insert(self, first: int, count: int, table: str = "blocks") -> None:
        """Rows that only the table has, or gets now."""
        self.execute(
            f"INSERT INTO {table} SELECT number + {first}, concat('row_', toString(block)), "
            f"concat('data ', toString(block)), block * 10, 0 FROM (SELECT number, number + {first} AS block "
            f"FROM numbers({count}))"
        )

    def produce(self, first: int, count: int) -> None:
        self.kafka.produce(self.topic, (self.message(n) for n in range(first, first + count)))

    def message(self, n: int) -> Message:
        row = {"block": n, "id": f"row_{n}", "data": f"data {n}", "timestamp": n * 10}
        return framed(self.schema_id, self.schema, row)

    def settings(self) -> dict[str, object]:
        return {
            "KAFKA_SOURCE__BROKERS": self.kafka.brokers,
            "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": self.registry.url,
            **self.clickhouse.settings(self.database),
        }

    # A topic of one partition in which row n has offset n

    def copy(self, count: int) -> None:
        """Produce the next rows, insert them into the table, then store the offset of the last one."""
        first = self.copied
        self.produce(first, count)
        self.insert(first, count)
        self.copied += count
        self.execute(f"INSERT INTO kafka_offsets VALUES ('{self.topic_name}', 0, {self.copied - 1})")

    @property
    def topic_name(self) -> str:
        """In the offset table."""
        return self.topic.replace(".", "_")

    @contextmanager
    def copying(self, rows: int, pause: float = 0.0) -> Iterator[None]:
        """While this lasts rows are copied, so many at a time."""
        ended = threading.Event()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                while not ended.is_set():
                    self.copy(rows)
                    time.sleep(pause)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        assert not failures, failures


def source(history: History, *tables: str, unbounded: str = "", more: str = "") -> str:
    """The YAML of the section `sources`."""
    phases = "".join(f"      - {{source_type: clickhouse, table_name: {table}}}\n" for table in tables or ("blocks",))
    return (
        f"sources:\n  s:\n    type: hybrid\n    primary_key: id\n    bounded_sources:\n{phases}"
        f"    unbounded_source: {{source_type: kafka, topic: {history.topic}{unbounded}}}\n{more}"
    )


SINKS = ("parquet", "json")
INTO_FILES = "sinks:\n" + "".join(
    f"  {name}: {{type: file, from: s, path: {name}, format: {name}, batch_flush_interval: 500ms}}\n" for name in SINKS
)


def differences(place: Workspace, history: History) -> list[str]:
    """Every row that was copied is in every sink once; twice if the table has it at or after the offset at which the
    topic begins, as the state says."""
    state = place.state()
    begin = state["hybrid_source_s_v1"]["unbounded_offsets"]["0"]
    end = state["clickhouse_source:s:v1"]["args"][0]["value"]
    twice = range(begin, end)
    owed = Counter(range(history.copied)) + Counter(twice)
    found = []
    for sink in SINKS:
        rows = Counter(row["block"] for row in place.rows(sink, sink))
        for what, numbers in (("lost", owed - rows), ("doubled", rows - owed)):
            if numbers:
                found.append(f"{sink}: {len(numbers)} rows {what}, for instance {sorted(numbers)[:5]}; twice {twice}")
    return found
