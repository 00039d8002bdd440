"""Rows of random pipelines, compared with a model in plain Python: what every node gets, gives, filters and rejects."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from support.harness import Finished, Workspace
from support.http_server import Answer, Request, recording_server
from support.kafka_broker import KafkaBroker
from support.otlp_receiver import Receiver, http_receiver
from support.postgres_server import PostgresServer

pytestmark = pytest.mark.spark

SIZES = {"small": {"EPOCH__ROWS": 30}, "large": {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 60}}
COLUMNS = "schema: {n: int64, name: string, tags: [string]}"


@dataclass(frozen=True)
class Row:
    n: int
    name: str
    tags: tuple[str, ...]


@dataclass
class Node:
    """`adds`: it may give several rows of one; then what it filters is not known."""

    name: str
    yaml: str
    inputs: list[str]
    rows: list[Row]
    rejected: int = 0
    adds: bool = False
    written: int | None = None
    """By a sink that does not write all."""


@dataclass(frozen=True)
class Kind:
    """A transform over one node: its YAML, with `{x}` for its input, and what becomes of a row; None for a bad one."""

    yaml: str
    model: Callable[[Row], list[Row] | None]
    adds: bool = False


def keep(row: Row) -> list[Row]:
    return [row]


def explode(row: Row) -> list[Row]:
    """Of the scripts and functions: nothing, one row or two."""
    return [] if row.n % 4 == 0 else [row, row] if row.n % 4 == 1 else [row]


def sql(text: str, more: str = "") -> str:
    return f'{{type: sql, primary_key: n, sql: "{text}"{more}}}'


JAVASCRIPT = "function process(row) { return row.n % 4 === 0 ? null : row.n % 4 === 1 ? [row, row] : row }"
PYTHON = "lambda row: None if row['n'] % 4 == 0 else [row, row] if row['n'] % 4 == 1 else row"
KINDS = [
    Kind(sql("SELECT n, name, tags FROM {x}"), keep),
    Kind(sql("SELECT * FROM {x} WHERE n % 3 <> 1"), lambda row: [row] if row.n % 3 != 1 else []),
    Kind(sql("SELECT n, upper(name) AS name, tags FROM {x} WHERE n < 0"), lambda row: []),
    Kind(
        sql("SELECT n, unnest(tags) AS name, tags FROM {x}"),
        lambda row: [Row(row.n, tag, row.tags) for tag in row.tags],
        adds=True,
    ),
    Kind(
        sql("WITH c AS (SELECT * FROM {x} WHERE n % 2 = 0) SELECT * FROM c WHERE name <> 'a'"),
        lambda row: [row] if row.n % 2 == 0 and row.name != "a" else [],
        adds=True,
    ),
    Kind(
        sql("SELECT n, name, tags FROM {x} WHERE n % 2 = 0 UNION ALL SELECT n, name, tags FROM {x} WHERE n % 3 = 0"),
        lambda row: [row] * ((row.n % 2 == 0) + (row.n % 3 == 0)),
        adds=True,
    ),
    Kind(
        sql("SELECT x.n, l.label AS name, x.tags FROM {x} x JOIN letters l ON x.name = l.name"),
        lambda row: [Row(row.n, row.name, row.tags)] if row.name in "abc" else [],
    ),
    Kind(
        sql("SELECT x.n, coalesce(l.label, x.name) AS name, x.tags FROM {x} x LEFT JOIN letters l ON x.name = l.name"),
        keep,
    ),
    Kind(
        sql("SELECT * FROM {x} WHERE dynamic_table_check('seen', name)"),
        lambda row: [row] if row.name in "ab" else [],
    ),
    Kind(
        sql("SELECT n, CAST(dynamic_table_check('seen', name) AS STRING) AS name, tags FROM {x}"),
        lambda row: [Row(row.n, "true" if row.name in "ab" else "false", row.tags)],
    ),
    Kind(
        sql("SELECT n + 0 * (1 / (n % 9)) AS n, name, tags FROM {x}", ", on_error: skip"),
        lambda row: [row] if row.n % 9 else None,
    ),
    Kind(
        f'{{type: script, from: {{x}}, language: javascript, primary_key: n, {COLUMNS}, script: "{JAVASCRIPT}"}}',
        explode,
        adds=True,
    ),
    Kind(
        f'{{type: python, from: {{x}}, primary_key: n, {COLUMNS}, code: "process = {PYTHON}"}}',
        explode,
        adds=True,
    ),
    Kind("{type: odd, from: {x}}", lambda row: [row] if row.n % 2 else [], adds=True),
    Kind("{type: held, from: {x}}", keep, adds=True),
]
PLUGIN = """
import pyarrow.compute as pc

from streamling.plugin import TransformPlugin, register_transform


class Passing(TransformPlugin):
    def output_schema(self):
        return self.context.input_schema

    def process_batch(self, batch):
        return batch


@register_transform("odd")
class Odd(Passing):
    stateless = True

    def process_batch(self, batch):
        return batch.filter(pc.equal(pc.bit_wise_and(batch.column("n"), 1), 1))


@register_transform("held")
class Held(Passing):
    '''Stays in the driver.'''
"""
FILE = f"type: file, format: json, primary_key: n, mode: {{type: bounded}}, {COLUMNS}"
HEAD = f"""\
sources:
  one: {{{FILE}, path: one, on_error: skip}}
  two: {{{FILE}, path: two}}
transforms:
  letters: {{type: lookup, path: letters.csv, format: csv, primary_key: name, schema: {{name: string, label: string}}}}
  seen: {{type: dynamic_table, backend_type: InMemory, backend_entity_name: seen, same_input: false,
         sql: "SELECT name FROM one WHERE name IN ('a', 'b')"}}
"""
SINKS = [
    ("{type: blackhole, from: {x}}", None),
    ("{type: file, from: {x}, path: {name}, format: json, batch_flush_interval: 50ms}", None),
    ("{type: print, from: {x}, sample_every: 7}", 7),
]


@dataclass
class Pipeline:
    """A random one. Every node is read by something."""

    seed: int
    nodes: dict[str, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        for name, count in (("one", 120), ("two", 70)):
            # The table of seen names has none of the second source: which of their rows comes first is not known.
            names = "abcdefgh" if name == "one" else "cdef"
            rows = [Row(n, names[n % len(names)], tuple("xyz"[: n % 4])) for n in range(count)]
            self.nodes[name] = Node(name, "", [], rows)
        self.nodes["one"].rejected = 6
        for number in range(chance.randint(4, 7)):
            self._add_transform(f"t{number}", chance)
        read = {input_ for node in self.nodes.values() for input_ in node.inputs}
        ends = [name for name in self.nodes if name not in read]
        for number, name in enumerate([*ends, *chance.sample(sorted(self.nodes), 2)]):
            self._add_sink(f"sink{number}", name, chance)

    def _add_transform(self, name: str, chance: random.Random) -> None:
        inputs = chance.sample(sorted(self.nodes), 2)
        if chance.random() < 0.2:
            union = " UNION ALL ".join(f"SELECT n, name, tags FROM {one}" for one in inputs)
            rows = [row for one in inputs for row in self.nodes[one].rows]
            self.nodes[name] = Node(name, sql(union), inputs, rows)
            return
        kind, input_ = chance.choice(KINDS), inputs[0]
        given = [kind.model(row) for row in self.nodes[input_].rows]
        rows = [row for some in given for row in some or []]
        yaml = kind.yaml.replace("{x}", input_)
        self.nodes[name] = Node(name, yaml, [input_], rows, sum(some is None for some in given), kind.adds)

    def _add_sink(self, name: str, input_: str, chance: random.Random) -> None:
        text, every = chance.choice(SINKS)
        rows = self.nodes[input_].rows
        yaml = text.replace("{x}", input_).replace("{name}", name)
        self.nodes[name] = Node(name, yaml, [input_], rows, written=None if every is None else len(rows) // every)

    @property
    def text(self) -> str:
        lines = {node.name: f"  {node.name}: {node.yaml}\n" for node in self.nodes.values() if node.inputs}
        sinks = [lines.pop(name) for name in list(lines) if name.startswith("sink")]
        return HEAD + "".join(lines.values()) + "sinks:\n" + "".join(sinks)

    def write(self, place: Workspace) -> Workspace:
        for name in ("one", "two"):
            (place.directory / name).mkdir()
            lines = [json.dumps({"n": r.n, "name": r.name, "tags": r.tags}) for r in self.nodes[name].rows]
            for number in range(self.nodes[name].rejected):
                lines.insert(13 * number, "{broken")
            (place.directory / name / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
        (place.directory / "letters.csv").write_text("name,label\na,a\nb,b\nc,c\n")
        return place.write(self.text, plugin=PLUGIN)

    def problems(self, receiver: Receiver) -> list[str]:
        found = []
        for node in self.nodes.values():
            given = sum(len(self.nodes[one].rows) for one in node.inputs)
            out = len(node.rows) if node.written is None else node.written
            expected = {"input_rows": given, "output_rows": out, "rows_skipped": node.rejected}
            if not node.adds:
                expected["rows_filtered"] = given - out - node.rejected if node.inputs else 0
            for name, value in expected.items():
                counted = sum(one.value for one in receiver.series(f"streamling_{name}", id=node.name))
                if counted != value:
                    found.append(f"{node.name}: {name} is {counted:g}, should be {value}: {node.yaml}")
        lost = receiver.series("streamling_rows_unaccounted")
        return [*found, *(f"{one.labels['id']}: {one.value:g} rows are not accounted for" for one in lost)]


def run(place: Workspace, receiver: Receiver, **settings: object) -> Finished:
    exporting = {
        "OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT": receiver.endpoint,
        "OPEN_TELEMETRY_METRICS__BATCH_INTERVAL_SECS": 60,
    }
    done = place.run(**exporting, **settings).succeeded()
    assert "a bug in streamling" not in done.stderr, done.stderr
    return done


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as one:
        yield one


@pytest.mark.parametrize("seed", [*range(7), 23])
def test_every_row_of_a_random_pipeline_is_accounted_for(place: Workspace, receiver: Receiver, seed: int) -> None:
    """Half of them in the driver, half of them in executors."""
    pipeline = Pipeline(seed)
    run(pipeline.write(place), receiver, **SIZES["large" if seed % 2 else "small"])
    assert pipeline.problems(receiver) == [], pipeline.text


TABLES = """
sources:
  src: {type: generator, rows: 100, primary_key: id, columns: {id: id, name: "concat('n', id)"}}
transforms:
  copied: {type: dynamic_table, backend_type: InMemory, backend_entity_name: a, sql: SELECT name FROM src}
  tenth:
    {type: dynamic_table, backend_type: InMemory, backend_entity_name: b,
     sql: "SELECT name FROM src WHERE id % 10 = 0", populate: after}
  asked: {type: sql, primary_key: id, sql: "SELECT id, dynamic_table_check('copied', name) AS there FROM src"}
sinks: {out: {type: blackhole, from: asked}}
"""


def test_rows_of_dynamic_tables_are_those_that_add_a_value(place: Workspace, receiver: Receiver) -> None:
    place.write(TABLES)
    run(place, receiver)

    def counted(name: str, node: str) -> int:
        return int(sum(one.value for one in receiver.series(f"streamling_{name}", id=node)))

    counts = {
        node: [counted(f"{name}", node) for name in ("input_rows", "output_rows", "rows_filtered")]
        for node in ("copied", "tenth")
    }
    assert counts == {"copied": [100, 100, 0], "tenth": [100, 10, 90]}


ROWS = 90
CHANGES = """
sources:
  src:
    type: kafka
    topic: {topic}
    data_format: json
    primary_key: id
    schema: {{id: int64, n: int64, name: string, _gs_op: string}}
    filter: _gs_op <> 'd' AND n % 5 <> 0
transforms:
  seen: {{type: dynamic_table, backend_type: InMemory, backend_entity_name: seen, sql: "SELECT upper(name) FROM src"}}
  checked: {{type: sql, primary_key: id,
            sql: "SELECT id, n, name FROM src WHERE dynamic_table_check('seen', upper(name))"}}
  handled: {{type: handler, from: checked, primary_key: id, url: '{url}/drop'}}
sinks:
  all: {{type: blackhole, from: src}}
  table: {{type: postgres, from: src, schema: public, table: last, primary_key: id}}
  topic: {{type: kafka, from: src, topic: {topic}-out, data_format: json, primary_key: id}}
  totals:
    type: postgres_aggregate
    from: checked
    schema: public
    landing_table: landing
    agg_table: totals
    retract: true
    primary_key: id
    group_by: {{name: {{type: text}}}}
    aggregate: {{rows: {{fn: count}}}}
  hook: {{type: webhook, from: handled, url: '{url}/hook', one_row_per_request: true, skip_on_error: true}}
"""


def respond(request: Request) -> Answer:
    """The handler drops a fourth of its rows, and the webhook refuses a third of them."""
    if request.path == "/hook":
        return Answer(status=400 if request.json["n"] % 3 == 0 else 200)
    return Answer(body=json.dumps([row for row in request.rows if row["n"] % 4]).encode())


@pytest.mark.servers
@pytest.mark.parametrize("size", SIZES)
def test_rows_that_sinks_replace_refuse_and_aggregate_are_accounted_for(
    place: Workspace, receiver: Receiver, kafka: KafkaBroker, postgres: PostgresServer, size: str
) -> None:
    """Changes of few keys, of which a source leaves some out that a dynamic table gets; several sinks on one node."""
    topic, database = kafka.topic("changes"), postgres.database()
    changes = [{"id": n % 7, "n": n, "name": f"n{n % 3}", "_gs_op": "iud"[n % 3]} for n in range(ROWS)]
    kafka.produce(topic, [json.dumps(row) for row in changes])
    kept = [row["n"] for row in changes if row["_gs_op"] != "d" and row["n"] % 5]
    handled = [n for n in kept if n % 4]
    with recording_server(respond) as server:
        place.write(CHANGES.format(topic=topic, url=server.url))
        brokers = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SINK__BROKERS": kafka.brokers}
        settings = {"NUM_RECORDS_BEFORE_STOP": len(kept), "APPLICATION_ID": topic, **brokers, **database.settings()}
        run(place, receiver, **settings, **SIZES[size])
        hooked = [request.json["n"] for request in server.requests if request.path == "/hook"]
    assert sorted(hooked) == handled

    def counted(name: str, node: str) -> int:
        return int(sum(one.value for one in receiver.series(f"streamling_{name}", id=node)))

    assert receiver.series("streamling_rows_unaccounted") == []
    assert (counted("output_rows", "src"), counted("rows_filtered", "src")) == (len(kept), ROWS - len(kept))
    inputs = {"all": kept, "table": kept, "topic": kept, "totals": kept, "handled": kept, "hook": handled}
    assert {node: counted("input_rows", node) for node in inputs} == {node: len(rows) for node, rows in inputs.items()}
    assert counted("input_rows", "seen") == ROWS, "before the filter"
    assert counted("output_rows", "seen") == ROWS
    for node in inputs:
        explained = [counted(name, node) for name in ("output_rows", "rows_filtered", "rows_skipped")]
        assert counted("input_rows", node) == sum(explained), (node, explained)
    assert counted("output_rows", "topic") == len(kafka.consume(f"{topic}-out"))
    assert counted("rows_filtered", "table") > 0
    assert counted("rows_skipped", "hook") == len([n for n in handled if n % 3 == 0])
