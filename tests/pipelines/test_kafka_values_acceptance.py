"""Values, schemas that change and filters of topics, as users meet them. All topics are read by one process."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamling.dev.topics import Message
from support.avro_frames import framed
from support.harness import MakeWorkspace, Row, Workspace
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

Fields = dict[str, Any]


def schema(fields: Fields) -> str:
    """A record; a type given as a pair comes with a default."""
    made = []
    for name, type_ in fields.items():
        has_default = isinstance(type_, tuple)
        made.append(
            {"name": name, "type": type_[0], "default": type_[1]} if has_default else {"name": name, "type": type_}
        )
    return json.dumps({"type": "record", "name": "R", "fields": made})


@dataclass(frozen=True)
class Case:
    """A topic: versions of its schema, and rows with the index of the version they are written with."""

    versions: Sequence[Fields]
    rows: Sequence[tuple[int, Row]]
    options: str = ""
    sql: str | None = None
    owed: int | None = None
    later: Sequence[tuple[int, Row]] = field(default_factory=tuple)
    """Rows that come while the process runs; versions that only they use are not registered before."""

    @property
    def arrive(self) -> int:
        return len(self.rows) + len(self.later) if self.owed is None else self.owed


def same(fields: Fields, rows: Sequence[Sequence[Any]], **more: Any) -> Case:
    names = ("id", *fields)
    numbered = [(0, dict(zip(names, (n, *values), strict=True))) for n, values in enumerate(rows)]
    return Case([{"id": "long", **fields}], numbered, **more)


NULLABLE = ["null", "string"]
TEXTS = [
    "naïve café Straße",
    "漢字 かな 한글",
    "🚀 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 Ωμέγα",
    "x" * 10_000,
    "a\nb\tc\r\nd\\0e\x0bf\x0cg\x07",
    "e\u0301",
    "\u00e9",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "a\u200db\u200bc",
    "",
]
DOUBLES = [1e308, 1e-308, -0.0, 0.0, math.pi, math.e, 0.1 + 0.2, 123456789.123456789]
WIDE_FIELDS: Fields = {
    **{f"l{n}": "long" for n in range(4)},
    **{f"i{n}": "int" for n in range(4)},
    **{f"d{n}": "double" for n in range(4)},
    **{f"b{n}": "boolean" for n in range(2)},
    **{f"s{n}": "string" for n in range(3)},
    **{
        f"{k}n{n}": ["null", t]
        for n, (k, t) in enumerate(
            zip("llidbsss", ("long", "long", "int", "double", "boolean", "string", "string", "string"), strict=True)
        )
    },
}
WIDE_ROW = (
    2**63 - 1, -(2**63), 0, -1, 2**31 - 1, -(2**31), 0, -1, 1e308, -1e-308, 0.5, -0.0, True, False, "", "🚀", "z",
    2**63 - 1, None, -(2**31), None, True, None, "", "last",
)  # fmt: skip
TEN = [{"id": n, "val": 50 * n} for n in range(1, 11)]
BLOCKS = [{"id": n, "block": n, "data": "target_data" if n % 2 == 0 else "other"} for n in range(1, 101)]
BLOCK: Fields = {"id": "long", "block": "long", "data": "string"}
VAL: Fields = {"id": "long", "val": "long"}


def blocks(count: int, condition: str, owed: int) -> Case:
    return Case([BLOCK], [(0, row) for row in BLOCKS[:count]], f', filter: "{condition}"', owed=owed)


CASES: dict[str, Case] = {
    "longs": same({"v": "long"}, [(n,) for n in (2**63 - 1, -(2**63), 0, -1)]),
    "ints": same({"v": "int"}, [(n,) for n in (2**31 - 1, -(2**31), 0)]),
    "doubles": same({"v": "double"}, [(n,) for n in DOUBLES]),
    "booleans": same({"v": "boolean"}, [(True,), (False,)]),
    "texts": same({"v": "string"}, [(text,) for text in TEXTS]),
    "wide": same(WIDE_FIELDS, [WIDE_ROW]),
    "nulls": same(
        {"l": ["null", "long"], "s": NULLABLE, "d": ["null", "double"]},
        [(None, None, None), (0, "", 0.0), (None, "text", None), (123, None, 4.5)],
    ),
    "default": Case(
        [{"id": "long", "data": "string"}, {"id": "long", "data": "string", "version": ("int", 1)}],
        [(n > 5, {"id": n, "data": "x", **({"version": 2} if n > 5 else {})}) for n in range(1, 11)],
    ),
    "nullable": Case(
        [{"id": "long", "name": "string"}, {"id": "long", "name": "string", "email": (NULLABLE, None)}],
        [(n > 3, {"id": n, "name": f"n{n}", **({"email": f"e{n}"} if n > 3 else {})}) for n in range(1, 7)],
    ),
    "removed": Case(
        [{"id": "long", "drop_me": ("string", "d")}, {"id": "long"}],
        [(n > 3, {"id": n, **({} if n > 3 else {"drop_me": "x"})}) for n in range(1, 7)],
    ),
    "widened": Case(
        [{"id": "long", "qty": "int"}, {"id": "long", "qty": "long"}],
        [(n > 2, {"id": n, "qty": qty}) for n, qty in enumerate((10, 2_000_000_000, 5, 9_000_000_000), 1)],
    ),
    "interleaved": Case(
        [{"id": "long"}, {"id": "long", "extra": (["null", "int"], None)}],
        [(0, {"id": 1}), (1, {"id": 2, "extra": 22}), (0, {"id": 3}), (1, {"id": 4, "extra": 44})],
    ),
    "two": Case(
        [{"id": "long"}, {"id": "long", "a": (["null", "int"], None), "b": (NULLABLE, None)}],
        [(0, {"id": 1}), (0, {"id": 2}), (1, {"id": 3, "a": 99, "b": "hi"})],
    ),
    "promoted": Case(
        [{"id": "long", "v": "float"}, {"id": "long", "v": "double"}],
        [(0, {"id": 1, "v": 1.5}), (1, {"id": 2, "v": 2.25})],
    ),
    "loosened": Case(
        [{"id": "long", "v": "string"}, {"id": "long", "v": NULLABLE}],
        [(0, {"id": 1, "v": "a"}), (1, {"id": 2, "v": "b"}), (1, {"id": 3, "v": None})],
    ),
    "explicit": Case(
        [{"id": "long"}, {"id": "long", "v": (["null", "int"], None)}],
        [(0, {"id": 1}), (1, {"id": 2, "v": None}), (1, {"id": 3, "v": 33})],
    ),
    "renamed": Case(
        [{"id": "long", "old_name": "string"}, {"id": "long", "new_name": (NULLABLE, None)}],
        [(0, {"id": 1, "old_name": "alice"}), (1, {"id": 2, "new_name": "bob"})],
    ),
    "tolerant": Case(
        [{"id": "long"}, {"id": "long", "more": ("int", 0)}],
        [(0, {"id": 1})],
        ", validate_writer_schema_ordering: false",
        later=[(1, {"id": 2, "more": 5})],
    ),
    "f_most": blocks(100, "block > 60", 40),
    "f_some": blocks(10, "block > 5", 5),
    "f_text": blocks(100, "data = 'target_data'", 50),
    "f_number": Case([VAL], [(0, row) for row in TEN], ', filter: "val > 100"', owed=8),
    "f_nothing": Case([VAL], [(0, row) for row in TEN], ', filter: "val < 0"', owed=0),
    "w_nothing": Case([VAL], [(0, row) for row in TEN[:5]], sql="SELECT id, val FROM w_nothing WHERE val < 0", owed=0),
    "w_all": Case([VAL], [(0, row) for row in TEN[:6]], sql="SELECT id, val FROM w_all WHERE val >= 0"),
    "unnested": Case(
        [VAL],
        [(0, {"id": n, "val": n}) for n in range(50)],
        sql="SELECT id, unnest(made) AS one FROM (SELECT id, [id, val] AS made FROM unnested WHERE id > 1000000)",
        owed=0,
    ),
    "waves": Case([VAL], [(0, row) for row in TEN], later=[(0, {"id": n, "val": n}) for n in range(11, 21)]),
}  # fmt: skip


@pytest.fixture(scope="module")
def arrived(new_place: MakeWorkspace, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> Mapping[str, list[Row]]:
    """What the sink of every case holds in the end. Also that positions have moved, whether rows came or not."""
    place = new_place()
    topics = {name: kafka.topic(name.replace("_", "-")) for name in CASES}
    ids: dict[tuple[str, int], int] = {}

    def produce(name: str, rows: Sequence[tuple[int, Row]]) -> None:
        messages: list[Message | bytes | str | None] = []
        for version, row in rows:
            text = schema(CASES[name].versions[version])
            if (name, version) not in ids:
                ids[name, version] = schema_registry.register(f"{topics[name]}-value", text)
            messages.append(framed(ids[name, version], text, row, "c"))
        kafka.produce(topics[name], messages)

    for name, case in CASES.items():
        produce(name, case.rows)
    place.write(_pipeline(topics))
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url}
    child = place.start_warm(CHECKPOINT_INTERVAL_SEC=1, **settings)
    child.until(lambda: len(_rows(place, "waves")) == 10, "the first wave")
    child.until(lambda: len(_rows(place, "tolerant")) == 1, "a row of the first version")
    for name, case in CASES.items():
        if case.later:
            produce(name, case.later)
    child.until(lambda: all(len(_rows(place, n)) >= c.arrive for n, c in CASES.items()), "all rows")
    child.until_epochs(2)
    finished = child.stop().succeeded()
    assert "stalled" not in finished.stderr
    offsets = {key: value["offset"] for key, value in place.state().items() if ":" in key}
    assert offsets == {f"{n}:{topics[n]}:0": len(c.rows) + len(c.later) for n, c in CASES.items()}
    return {name: _rows(place, name) for name in CASES}


def _pipeline(topics: Mapping[str, str]) -> str:
    sources = [f"  {n}: {{type: kafka, topic: {topics[n]}, primary_key: id{c.options}}}" for n, c in CASES.items()]
    queries = [f"  {n}_q: {{type: sql, primary_key: id, sql: '{c.sql}'}}" for n, c in CASES.items() if c.sql]
    sinks = [
        f"  {n}_out: {{type: file, from: {n}_q, path: {n}, format: parquet}}"
        if c.sql
        else f"  {n}_out: {{type: file, from: {n}, path: {n}, format: parquet}}"
        for n, c in CASES.items()
    ]
    return "\n".join(["sources:", *sources, "transforms:", *queries, "sinks:", *sinks, ""])


def _rows(place: Workspace, name: str) -> list[Row]:
    return place.rows(name, "parquet")


def values(rows: Sequence[Row], name: str = "v") -> list[Any]:
    return [row[name] for row in rows]


def test_whole_numbers_are_exact_at_their_bounds(arrived: Mapping[str, list[Row]]) -> None:
    assert values(arrived["longs"]) == [2**63 - 1, -(2**63), 0, -1]
    assert values(arrived["ints"]) == [2**31 - 1, -(2**31), 0]


def test_doubles_and_booleans_survive_bit_for_bit(arrived: Mapping[str, list[Row]]) -> None:
    assert [v.hex() for v in values(arrived["doubles"])] == [v.hex() for v in DOUBLES]
    assert values(arrived["booleans"]) == [True, False]


def test_text_is_neither_normalised_nor_trimmed_nor_escaped(arrived: Mapping[str, list[Row]]) -> None:
    assert [v.encode() for v in values(arrived["texts"])] == [text.encode() for text in TEXTS]
    assert [len(v.encode()) for v in values(arrived["texts"])][5:7] == [3, 2]


def test_a_wide_record_arrives_whole(arrived: Mapping[str, list[Row]]) -> None:
    (row,) = arrived["wide"]
    assert [row[name] for name in WIDE_FIELDS] == list(WIDE_ROW)
    assert len(WIDE_FIELDS) == 25


def test_null_is_neither_zero_nor_empty(arrived: Mapping[str, list[Row]]) -> None:
    found = [(row["l"], row["s"], row["d"]) for row in arrived["nulls"]]
    assert found == [(None, None, None), (0, "", 0.0), (None, "text", None), (123, None, 4.5)]


def test_fields_that_were_added_have_their_default_in_older_rows(arrived: Mapping[str, list[Row]]) -> None:
    assert values(arrived["default"], "version") == [1] * 5 + [2] * 5
    assert values(arrived["nullable"], "email") == [None] * 3 + ["e4", "e5", "e6"]
    assert values(arrived["interleaved"], "extra") == [None, 22, None, 44]
    assert [(row["a"], row["b"]) for row in arrived["two"]] == [(None, None), (None, None), (99, "hi")]
    assert values(arrived["explicit"]) == [None, None, 33]


def test_fields_that_were_removed_or_renamed_are_left_out(arrived: Mapping[str, list[Row]]) -> None:
    assert [sorted(row) for row in arrived["removed"]] == [["_gs_op", "id"]] * 6
    assert values(arrived["renamed"], "new_name") == [None, "bob"]


def test_types_are_widened(arrived: Mapping[str, list[Row]]) -> None:
    assert values(arrived["widened"], "qty") == [10, 2_000_000_000, 5, 9_000_000_000]
    assert values(arrived["promoted"]) == [1.5, 2.25]
    assert values(arrived["loosened"]) == ["a", "b", None]


def test_a_newer_schema_is_read_as_the_one_of_the_start_where_that_is_allowed(
    arrived: Mapping[str, list[Row]],
) -> None:
    assert arrived["tolerant"] == [{"id": 1, "_gs_op": "i"}, {"id": 2, "_gs_op": "i"}]


def test_filters_of_sources_keep_what_they_say(arrived: Mapping[str, list[Row]]) -> None:
    assert values(arrived["f_most"], "block") == list(range(61, 101))
    assert values(arrived["f_some"], "block") == [6, 7, 8, 9, 10]
    assert values(arrived["f_text"], "data") == ["target_data"] * 50
    assert values(arrived["f_number"], "val") == list(range(150, 501, 50))
    assert arrived["f_nothing"] == []


def test_conditions_of_queries_keep_what_they_say(arrived: Mapping[str, list[Row]]) -> None:
    assert arrived["w_nothing"] == arrived["unnested"] == []
    assert values(arrived["w_all"], "id") == [1, 2, 3, 4, 5, 6]
    assert values(arrived["waves"], "id") == list(range(1, 21))


def test_a_newer_schema_ends_the_run(place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    first, second = schema({"id": "long"}), schema({"id": "long", "more": ("int", 0)})
    id_ = schema_registry.register(f"{topic}-value", first)
    kafka.produce(topic, [framed(id_, first, {"id": 1})])
    place.write(f"""\
sources: {{orders: {{type: kafka, topic: {topic}}}}}
sinks: {{out: {{type: file, from: orders, path: out, format: json}}}}
""")
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url}
    child = place.start_warm(CHECKPOINT_INTERVAL_SEC=1, **settings)
    child.until(lambda: place.rows("out", "json"), "a row")
    newer = schema_registry.register(f"{topic}-value", second)
    kafka.produce(topic, [framed(newer, second, {"id": 2, "more": 5})])
    finished = child.wait(30).failed()
    assert (
        f"topic '{topic}', partition 0, offset 1: a message was written with the schema id {newer}" in finished.stderr
    )
