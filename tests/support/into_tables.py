"""From a topic into Postgres, with positions there too.

Two tables: one kept by key, with inserts, updates and deletes in their order; one without a key, where a row that is
written twice is there twice. With `every_change` a trigger of the first one logs what happens to its rows.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from streamling.dev.topics import Message
from streamling.testing.crash import VARIABLE
from support.crash_places import all_places
from support.doubling_plugin import doubling
from support.harness import Child, Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import Database

SINKS = ("current", "audit")
POINTS = all_places(SINKS)
TABLES = ("public.current", "public.audit", "public._streamling_ledger", "streamling.state")
PARTITIONS, KEYS, RATE = 4, 300, 80
# The keys of partition p, if it was added later, begin at p * ADDED: a key stays in its partition.
ADDED = 1000
PIPELINE = """\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64, n: int64}}}}
transforms:
  doubled: {doubled}
sinks:
  current: {{type: postgres, from: doubled, schema: public, table: current, batch_flush_interval: 200ms{more}}}
  audit: {{type: postgres, from: events, schema: public, table: audit, batch_flush_interval: 200ms}}
"""


TRIGGER = """
CREATE TABLE current (id bigint PRIMARY KEY, n bigint, twice bigint);
CREATE TABLE changes (number bigserial, id bigint, change text);
CREATE FUNCTION log_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO changes (id, change) VALUES (coalesce(NEW.id, OLD.id), left(TG_OP, 1) || coalesce(NEW.n::text, ''));
  RETURN NULL;
END $$;
CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON current FOR EACH ROW EXECUTE FUNCTION log_change();
"""
SQL = '{type: sql, primary_key: id, sql: "SELECT id, n, n * 2 AS twice FROM events"}'
PLUGIN = "{type: double, from: events, primary_key: id}"


class IntoTables:
    """The pipeline, what was sent to it, and its tables. Without Spark a plugin does what SQL would do."""

    pipeline = PIPELINE

    def __init__(
        self,
        place: Workspace,
        kafka: KafkaBroker,
        database: Database,
        seed: int,
        *,
        spark: bool = True,
        every_change: bool = False,
    ) -> None:
        self._place, self._kafka, self.database = place, kafka, database
        self._spark = spark
        self._every_change = every_change
        self._topic = kafka.topic(partitions=PARTITIONS)
        self._partitions = PARTITIONS
        self._sending = ExitStack()
        self._random = random.Random(seed)
        self._sent: list[tuple[int, str]] = []  # key and operation of change n
        self._settings = {
            "KAFKA_SOURCE__BROKERS": kafka.brokers,
            "KAFKA_SOURCE__CONSUMER_GROUP_ID": f"group-{self._topic}",
            "KAFKA_SOURCE__SESSION_TIMEOUT_MS": 3000,
            "EPOCH__ROWS": 250,
            "EPOCH__TAKEOVER_MS": 2000,
            "POSTGRES_SINK__STATEMENT_TIMEOUT_SECS": 5,
            # A process may be started while the database is down.
            "STATE_BACKEND__POSTGRES__ACQUIRE_TIMEOUT_SECS": 60,
            **database.settings(),
            **database.state_settings(),
        }
        doubled = SQL if spark else PLUGIN
        more = ", deduplicate: false" if every_change else ""
        place.write(self.pipeline.format(topic=self._topic, doubled=doubled, more=more), plugin=doubling("n"))
        database.execute("CREATE TABLE audit (id bigint, n bigint)" + (f"; {TRIGGER}" if every_change else ""))

    def start(self, crash: str | None = None, **settings: object) -> Child:
        environment = {VARIABLE: crash} if crash else {}
        return self._place.start(environment=environment, spark=self._spark, **{**self._settings, **settings})

    def add_partition(self) -> int:
        """Returns the number of partitions. New keys go to the new one."""
        self._sending.close()  # a producer does not learn at once that there is another partition
        self._kafka.add_partitions(self._topic, self._partitions + 1)
        self._partitions += 1
        self._send()
        return self._partitions

    @contextmanager
    def producing(self) -> Iterator[None]:
        with self._sending:
            self._send()
            yield
        # The last change of each partition is not a deletion: when it has arrived, so have all before it.
        self._kafka.produce(self._topic, [self._change(self._key(p, 0), "c") for p in range(self._partitions)])

    def arrival(self) -> Callable[[], bool]:
        last: dict[int, int] = {}
        for n in reversed(range(len(self._sent))):
            id_, operation = self._sent[n]
            if operation != "d":
                last.setdefault(partition_of(id_), n)
            if len(last) == self._partitions:
                break

        def arrived() -> bool:
            held = self._latest()
            return all(held.get(partition, -1) >= n for partition, n in last.items())

        return arrived

    def _latest(self) -> dict[int, int]:
        """By partition: the last change in the tables."""
        partition = f"CASE WHEN id < {ADDED} THEN mod(id, {PARTITIONS}) ELSE id / {ADDED} END"
        return dict(self.database.rows(f"SELECT {partition}, max(n) FROM audit GROUP BY 1"))

    def differences(self) -> list[str]:
        held = dict(self.database.rows("SELECT id, (n, twice)::text FROM current"))
        owed = {id_: f"({n},{2 * n})" for id_, n in self._model().items()}
        wrong = sorted(id_ for id_ in held.keys() | owed.keys() if held.get(id_) != owed.get(id_))
        problems = [f"current: {len(wrong)} keys are wrong"] if wrong else []
        for id_ in wrong[:5]:
            changes = [f"{n}{operation}" for n, (key, operation) in enumerate(self._sent) if key == id_]
            problems.append(f"  {id_} holds {held.get(id_)} instead of {owed.get(id_)}; last {' '.join(changes[-4:])}")
        return problems + self._doubled() + (self._logged() if self._every_change else [])

    def _logged(self) -> list[str]:
        """What the trigger should have seen of each key, and has not."""
        held: dict[int, list[str]] = {}
        for id_, change in self.database.rows("SELECT id, change FROM changes ORDER BY number"):
            held.setdefault(id_, []).append(change)
        owed: dict[int, list[str]] = {}
        present: set[int] = set()
        for n, (id_, operation) in enumerate(self._sent):
            if operation != "d":
                owed.setdefault(id_, []).append(f"{'U' if id_ in present else 'I'}{n}")
                present.add(id_)
            elif id_ in present:
                owed[id_].append("D")
                present.remove(id_)
        wrong = [id_ for id_ in sorted(held.keys() | owed.keys()) if held.get(id_) != owed.get(id_)]
        return [f"changes of {id_}: {held.get(id_)} instead of {owed.get(id_)}" for id_ in wrong[:5]]

    def _doubled(self) -> list[str]:
        held = Counter(n for (n,) in self.database.rows("SELECT n FROM audit"))
        # Without a key nothing can be deleted, so deletions are left out.
        owed = Counter(n for n, (_, operation) in enumerate(self._sent) if operation != "d")
        missing, doubled = owed - held, held - owed
        if not missing and not doubled:
            return []
        return [f"audit: missing {_some(missing)}; too many {_some(doubled)}"]

    def _model(self) -> dict[int, int]:
        rows: dict[int, int] = {}
        for n, (id_, operation) in enumerate(self._sent):
            if operation == "d":
                rows.pop(id_, None)
            else:
                rows[id_] = n
        return rows

    def _send(self) -> None:
        self._sending.enter_context(self._kafka.producing(self._topic, self._changes(), RATE))

    def _changes(self) -> Iterator[Message]:
        while True:
            partition, number = self._random.randrange(self._partitions), self._random.randrange(KEYS // PARTITIONS)
            yield self._change(self._key(partition, number), self._random.choice("cuud"))

    @staticmethod
    def _key(partition: int, number: int) -> int:
        return number * PARTITIONS + partition if partition < PARTITIONS else partition * ADDED + number

    def _more(self, id_: int) -> dict[str, int]:
        """Further columns of a change."""
        return {}

    def _change(self, id_: int, operation: str) -> Message:
        payload = json.dumps({"id": id_, "n": len(self._sent), **self._more(id_)}).encode()
        self._sent.append((id_, operation))
        return Message(payload, headers=(("dbz.op", operation.encode()),), partition=partition_of(id_))


def partition_of(id_: int) -> int:
    return id_ % PARTITIONS if id_ < ADDED else id_ // ADDED


def _some(numbers: Counter[int]) -> str:
    return f"{numbers.total()} {sorted(numbers)[:5]}"
