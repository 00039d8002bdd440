"""What the YAML of webhook, postgres, postgres_aggregate, kafka and clickhouse sinks may say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streamling.connector import BatchPolicy, Guarantee, kinds
from streamling.engine.protocol.facts import facts_of
from streamling.errors import KEY_REQUIRED, MESSAGE_KEY, Caution, Condition, UserError
from streamling.plan.contract import ChecksColumns
from streamling.plan.pipeline import make_plan
from streamling.plan.types import (
    BINARY,
    DATE,
    DURATION,
    FLOAT64,
    INT32,
    INT64,
    INTERVAL,
    NULL,
    STRING,
    TIME32,
    TIME64,
    TIMESTAMP,
    U256,
    UINT64,
    DataType,
    Field,
    Schema,
    decimal,
    decimal_arb,
    list_of,
    map_of,
    struct_of,
)
from streamling.sinks.clickhouse import ClickHouseSinkOptions
from streamling.sinks.kafka import KafkaSinkOptions, MessageCompression
from streamling.sinks.kafka.sink import KafkaSink
from streamling.sinks.postgres import OnConflict, PostgresOptions
from streamling.sinks.postgres.sink import PostgresSink
from streamling.sinks.postgres_aggregate import AggregateFunction, PostgresAggregateOptions
from streamling.sinks.webhook import WebhookOptions
from streamling.spec.pipeline import load_pipeline
from streamling.spec.pipeline.options import SinkOptions
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import Compression
from support.node_samples import columns, node, problem, problems

POSTGRES = "type: postgres\nfrom: s\nschema: public\ntable: t\n"
AGGREGATE = "type: postgres_aggregate\nfrom: s\nschema: public\nlanding_table: l\nagg_table: a\n"
KAFKA = "type: kafka\nfrom: s\ntopic: t\n"
CLICKHOUSE = "type: clickhouse\nfrom: s\ntable: t\nprimary_key: id\n"
WEBHOOK = "type: webhook\nfrom: s\nurl: http://h\n"


def findings(fields: str, rows: Schema, key: tuple[str, ...] = ("id",)) -> list[UserError | Caution]:
    spec = node("sink", fields)
    assert isinstance(spec.options, ChecksColumns)
    return list(spec.options.check_columns(spec, rows, key))


# all of them


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        (POSTGRES, "table"),
        (AGGREGATE + "aggregate: {n: {fn: count}}\n", "table"),
        (KAFKA + "data_format: json\n", "topic"),
        (CLICKHOUSE, "table"),
        (WEBHOOK, "url"),
        ("type: file\nfrom: s\npath: x\nformat: csv\n", "path"),
    ],
)
def test_the_identity_of_a_sink_is_not_a_label_to_set(fields: str, label: str) -> None:
    code, _, message = problem("sink", f"{fields}telemetry: {{labels: {{{label}: x}}}}")
    assert code == "INVALID_VALUE" and f"'{label}'" in message


@pytest.mark.parametrize(
    ("fields", "required"),
    [
        (POSTGRES, None),
        (AGGREGATE + "aggregate: {n: {fn: count}}\n", KEY_REQUIRED),
        (KAFKA + "data_format: json\n", MESSAGE_KEY),
        (CLICKHOUSE, KEY_REQUIRED),
        (WEBHOOK, None),
    ],
)
def test_which_sinks_cannot_work_without_a_key(fields: str, required: Condition | None) -> None:
    options = node("sink", fields).options
    assert isinstance(options, SinkOptions) and options.key_required is required


@pytest.mark.parametrize("fields", [POSTGRES, KAFKA + "data_format: json\n", CLICKHOUSE, WEBHOOK])
def test_written_to_by_one_stream_unless_told_otherwise(fields: str) -> None:
    options = node("sink", fields).options
    assert getattr(options, "parallelism", None) == 1
    assert problem("sink", f"{fields}parallelism: 0")[0] == "INVALID_VALUE"


# webhook


def test_a_webhook_does_not_skip_unless_told() -> None:
    options = node("sink", WEBHOOK).options
    assert isinstance(options, WebhookOptions)
    assert (options.skip_on_error, options.batch_size, options.batch_flush_interval) == (False, None, None)
    assert problem("sink", WEBHOOK + "deduplicate: true")[0] == "UNKNOWN_FIELD"


# postgres


def test_a_postgres_sink_updates_and_deduplicates_unless_told_otherwise() -> None:
    options = node("sink", POSTGRES).options
    assert isinstance(options, PostgresOptions)
    assert (options.on_conflict, options.deduplicate, options.update_where) == (OnConflict.UPDATE, True, {})
    assert (options.batch_size, options.batch_flush_interval) == (None, None)


@pytest.mark.parametrize(
    ("fields", "settings", "batch"),
    [
        ("", {}, None),
        ("batch_size: 5", {}, BatchPolicy(5, 1.0)),
        ("batch_flush_interval: 3s", {}, BatchPolicy(100, 3.0)),
        ("", {"batch_size": 7}, BatchPolicy(7, 1.0)),
        ("batch_size: 5", {"batch_flush_interval": "2s"}, BatchPolicy(5, 2.0)),
    ],
)
def test_rows_wait_for_others_only_where_that_is_asked_for(
    fields: str, settings: dict[str, object], batch: BatchPolicy | None
) -> None:
    connection = {"host": "h", "port": 1, "user": "u", "pass": "p", "db": "d"}
    known = Settings.model_validate({"postgres_sink": {**connection, **settings}})
    sink = kinds.build(node("sink", POSTGRES + fields), known)
    assert isinstance(sink, PostgresSink)
    assert sink.capabilities.batch == batch


def test_a_postgres_sink_needs_a_schema_and_a_table() -> None:
    assert [p.code for p in problems("sink", "type: postgres\nfrom: s")] == ["MISSING_FIELD"] * 2


@pytest.mark.parametrize(
    ("field", "accepted"), [("on_conflict: Nothing", "update, nothing"), ("update_where: {a: '~'}", "=, >, >=, <, <=")]
)
def test_what_a_postgres_sink_does_not_do(field: str, accepted: str) -> None:
    code, line, message = problem("sink", POSTGRES + field)
    assert (code, line) == ("INVALID_VALUE", 7) and f"accepted: {accepted}" in message


@pytest.mark.parametrize("operator", ["=", ">", ">=", "<", "<=", "!=", "<>"])
def test_every_comparison_of_update_where(operator: str) -> None:
    assert findings(POSTGRES + f"update_where: {{at: '{operator}'}}", columns(id=INT64, at=TIMESTAMP)) == []


@pytest.mark.parametrize("column", ["missing", "_gs_op", "At"])
def test_update_where_compares_columns_of_the_table(column: str) -> None:
    fields = POSTGRES + f"update_where:\n  at: '>'\n  {column}: '>'\n"
    (found,) = findings(fields, columns(id=INT64, at=TIMESTAMP))
    assert isinstance(found, UserError)
    assert (found.code, found.where and found.where.line) == ("INVALID_VALUE", 9)
    assert f"'{column}'" in found.message and "at" in (found.hint or "")


@pytest.mark.parametrize(
    ("more", "key", "names"),
    [
        ("on_conflict: nothing\n", ("id",), ("id", "at")),
        ("", (), ("id", "at")),
        ("", ("id", "at"), ("id", "at")),
    ],
)
def test_update_where_without_updates_is_cautioned_against(
    more: str, key: tuple[str, ...], names: tuple[str, ...]
) -> None:
    fields = POSTGRES + more + "update_where: {at: '>'}"
    (found,) = findings(fields, columns(**dict.fromkeys(names, INT64)), key)
    assert isinstance(found, Caution) and "no effect" in found.message


# postgres_aggregate


def aggregate(fields: str) -> PostgresAggregateOptions:
    options = node("sink", AGGREGATE + fields).options
    assert isinstance(options, PostgresAggregateOptions)
    return options


def test_groups_and_aggregates_keep_their_order_and_case() -> None:
    options = aggregate(
        "group_by: {Zone: {}, area: {from: a, type: varchar(9)}}\n"
        "aggregate: {z: {fn: sum, from: x}, B: {fn: count}, a: {fn: max}}"
    )
    assert list(options.group_by) == ["Zone", "area"]
    assert (options.group_by["area"].from_, options.group_by["area"].type) == ("a", "varchar(9)")
    assert [(name, e.fn) for name, e in options.aggregate.items()] == [
        ("z", AggregateFunction.SUM),
        ("B", AggregateFunction.COUNT),
        ("a", AggregateFunction.MAX),
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ("aggregate: {}", "INVALID_VALUE"),
        ("aggregate: {n: {}}", "MISSING_FIELD"),
        ("aggregate: {n: {fn: SUM}}", "INVALID_VALUE"),
        ("aggregate: {n: {fn: median}}", "INVALID_VALUE"),
        ("aggregate: {n: {fn: sum, column: a}}", "UNKNOWN_FIELD"),
        ("aggregate: {n: sum}", "WRONG_TYPE"),
        ("aggregate: {n: {fn: count}, m: {fn: sum, type: money}}", "INVALID_VALUE"),
        ("aggregate: {n: {fn: count}}\ngroup_by: {a: {fn: sum}}", "UNKNOWN_FIELD"),
        ("aggregate: {n: {fn: count}}\ngroup_by: [a]", "WRONG_TYPE"),
        ("aggregate: {n: {fn: count}}\ngroup_by: {a: {type: uuid}}", "INVALID_VALUE"),
    ],
)
def test_the_maps_of_an_aggregate_are_strict(fields: str, code: str) -> None:
    assert problem("sink", AGGREGATE + fields)[0] == code


def test_an_aggregate_is_required() -> None:
    assert problem("sink", AGGREGATE)[:2] == ("MISSING_FIELD", 2)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ("group_by: {n: {}}\naggregate:\n  n: {fn: count}", 10),
        ("aggregate:\n  n: {fn: avg}\n  n_sum: {fn: sum}", 10),
        ("aggregate:\n  key: {fn: count}", 9),
    ],
)
def test_no_two_columns_of_the_result_have_one_name(fields: str, line: int) -> None:
    assert problem("sink", AGGREGATE + fields)[:2] == ("INVALID_VALUE", line)


def test_rows_and_results_need_two_tables() -> None:
    fields = AGGREGATE.replace("agg_table: a", "agg_table: l") + "aggregate: {n: {fn: count}}"
    assert problem("sink", fields)[:2] == ("INVALID_VALUE", 7)


def test_the_columns_an_aggregate_reads_must_be_in_the_input() -> None:
    fields = AGGREGATE + (
        "group_by:\n  shop: {}\n  area: {from: zone}\n"
        "aggregate:\n  n: {fn: count}\n  m: {fn: count, from: nothing}\n"
        "  total: {fn: sum, from: amount}\n  top: {fn: max}\n"
    )
    found = findings(fields, columns(id=INT64, shop=STRING))
    assert [(f.code, f.where and f.where.line) for f in found] == [
        ("INVALID_VALUE", 10),
        ("INVALID_VALUE", 14),
        ("INVALID_VALUE", 15),
    ]
    assert ["'zone'" in found[0].message, "'amount'" in found[1].message, "'top'" in found[2].message] == [True] * 3
    assert findings(fields, columns(id=INT64, shop=STRING, zone=STRING, amount=INT64, top=INT64)) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("group_by: {id: {type: json}}\naggregate: {n: {fn: count}}", "has the type 'json'"),
        (f"aggregate: {{{'n' * 64}: {{fn: count}}}}", "has 64 bytes"),
        (f"aggregate: {{{'n' * 58}: {{fn: avg, from: id}}}}", "_count' has 64 bytes"),
        (f"group_by: {{{'n' * 60}: {{from: id}}}}\naggregate: {{n: {{fn: count}}}}\nretract: true", "has 70 bytes"),
        ("aggregate: {n: {fn: count}}", ""),
    ],
)
def test_groups_can_be_compared_and_names_are_not_cut_off(fields: str, message: str) -> None:
    found = [finding.message for finding in findings(AGGREGATE + fields, columns(id=INT64))]
    assert [message in text for text in found] == ([True] if message else [])
    (reserved,) = findings(AGGREGATE + "aggregate: {n: {fn: count}}", columns(id=INT64, _gs_checkpoint_epoch=INT64))
    assert "that the sink adds" in reserved.message


# kafka


def test_a_kafka_sink_packs_with_lz4_unless_told_otherwise() -> None:
    options = node("sink", KAFKA + "data_format: avro").options
    assert isinstance(options, KafkaSinkOptions)
    assert (options.batch_size, options.batch_flush_interval) == (10_000, timedelta(milliseconds=200))
    assert (options.message_max_bytes, options.topic_partitions) == (10_485_760, None)
    assert (options.compression, options.deduplicate) == (MessageCompression.LZ4, True)


def test_a_kafka_sink_needs_a_format_in_lower_case() -> None:
    assert problem("sink", KAFKA)[:2] == ("MISSING_FIELD", 2)
    assert problem("sink", KAFKA + "data_format: JSON")[:2] == ("INVALID_VALUE", 6)


@pytest.mark.parametrize(
    ("more", "owed"), [("", Guarantee.EXACTLY_ONCE), ("exactly_once: false", Guarantee.AT_LEAST_ONCE)]
)
def test_a_kafka_sink_says_before_it_runs_how_it_delivers(more: str, owed: Guarantee) -> None:
    made = kinds.build(node("sink", f"{KAFKA}data_format: json\n{more}"), Settings())
    assert isinstance(made, KafkaSink)
    assert (made.capabilities.guarantee, made.capabilities.transactional) == (owed, owed is Guarantee.EXACTLY_ONCE)


def test_columns_that_become_one_avro_field_are_refused() -> None:
    rows = Schema((Field("a b", INT64), Field("a_b", INT64)))
    (found,) = findings(KAFKA + "data_format: avro\n", rows)
    assert "the columns 'a b' and 'a_b' both become the Avro field 'a_b'" in str(found)
    assert findings(KAFKA + "data_format: json\n", rows) == []


@pytest.mark.parametrize("written", ["none", "GZIP", "Lz4"])
def test_the_compression_of_messages_ignores_case(written: str) -> None:
    options = node("sink", KAFKA + f"data_format: json\ncompression: {written}").options
    assert isinstance(options, KafkaSinkOptions) and options.compression.value == written.lower()


def test_a_compression_that_messages_do_not_have() -> None:
    code, line, message = problem("sink", KAFKA + "data_format: json\ncompression: zstd")
    assert (code, line) == ("INVALID_VALUE", 7) and "none, gzip, lz4" in message


@pytest.mark.parametrize(
    ("type_", "path"),
    [
        (NULL, "c"),
        (TIME32, "c"),
        (TIME64, "c"),
        (DURATION, "c"),
        (INTERVAL, "c"),
        (list_of(TIME32), "c[]"),
        (map_of(DURATION), "c{}"),
        (map_of(STRING, key=INT32), "c"),
        (struct_of(Field("a", STRING), Field("b", list_of(struct_of(Field("x", NULL))))), "c.b[].x"),
    ],
)
def test_a_column_that_avro_cannot_hold_is_named_by_its_path(type_: DataType, path: str) -> None:
    (found,) = findings(KAFKA + "data_format: avro", columns(id=INT64, c=type_))
    assert isinstance(found, UserError) and found.code == "INVALID_VALUE"
    assert "no Avro encoding" in found.message and f"'{path}'" in found.message
    assert findings(KAFKA + "data_format: json", columns(id=INT64, c=type_)) == []


@pytest.mark.parametrize(
    "type_",
    [
        UINT64,
        DATE,
        TIMESTAMP,
        decimal_arb(500, 3),
        BINARY,
        map_of(list_of(decimal(76, 2))),
        struct_of(Field("a", U256)),
    ],
)
def test_columns_that_avro_can_hold(type_: DataType) -> None:
    assert findings(KAFKA + "data_format: avro", columns(id=INT64, c=type_)) == []


# clickhouse


def clickhouse(fields: str) -> ClickHouseSinkOptions:
    options = node("sink", CLICKHOUSE + fields).options
    assert isinstance(options, ClickHouseSinkOptions)
    return options


def test_a_clickhouse_sink_appends_unless_told_otherwise() -> None:
    options = clickhouse("")
    assert (options.append_only_mode, options.version_column_name, options.overrides) == (True, None, {})
    assert (options.compression, options.compression_level, options.batch_size) == (None, None, None)
    assert clickhouse("compression: ' GZip'").compression is Compression.GZIP


def test_a_clickhouse_sink_names_its_key_itself() -> None:
    assert problem("sink", CLICKHOUSE.replace("primary_key: id\n", ""))[:2] == ("MISSING_FIELD", 2)
    assert problem("sink", CLICKHOUSE.replace("id", "' , '"))[:2] == ("INVALID_VALUE", 6)


@pytest.mark.parametrize("field", ["compression: brotli", "compression_level: 10", "compression_level: -1"])
def test_what_a_clickhouse_sink_refuses(field: str) -> None:
    assert problem("sink", CLICKHOUSE + field)[:2] == ("INVALID_VALUE", 7)


def test_an_override_has_two_names_of_which_one_may_be_used() -> None:
    assert clickhouse("schema_override: {a: String}").overrides == {"a": "String"}
    assert clickhouse("schema_overrides: {a: String}").overrides == {"a": "String"}
    both = "schema_override: {a: String}\nschema_overrides: {b: String}"
    assert problem("sink", CLICKHOUSE + both)[:2] == ("INVALID_VALUE", 8)
    assert problem("sink", CLICKHOUSE + "schema_overrides:\n  a: 5")[:2] == ("WRONG_TYPE", 8)


@pytest.mark.parametrize("name", ["missing", "_gs_op", "is_deleted"])
def test_a_version_must_be_in_the_input(name: str) -> None:
    rows = columns(id=INT64, at=TIMESTAMP, is_deleted=INT32)
    (found,) = findings(CLICKHOUSE + f"version_column_name: {name}", rows)
    assert isinstance(found, UserError) and found.where is not None and found.where.line == 7
    assert findings(CLICKHOUSE + "version_column_name: at", rows) == []


@pytest.mark.parametrize("name", ["missing", "at"])
def test_a_version_where_nothing_is_appended_is_only_cautioned_against(name: str) -> None:
    fields = CLICKHOUSE + f"append_only_mode: false\nversion_column_name: {name}"
    (found,) = findings(fields, columns(id=INT64, at=TIMESTAMP))
    assert isinstance(found, Caution) and "no effect" in found.message


@pytest.mark.parametrize("type_", [STRING, DATE, FLOAT64, DataType("int16")])
def test_a_time_cannot_be_made_of_any_column(type_: DataType) -> None:
    fields = CLICKHOUSE + "schema_override:\n  at: Nullable(datetime64(3))\n"
    (found,) = findings(fields, columns(id=INT64, at=type_))
    assert isinstance(found, UserError) and found.where is not None and found.where.line == 8


@pytest.mark.parametrize(
    "type_", [INT32, INT64, DataType("uint32"), UINT64, DataType("timestamp", unit="ns", zone="UTC")]
)
def test_a_time_can_be_made_of_seconds_and_timestamps(type_: DataType) -> None:
    assert findings(CLICKHOUSE + "schema_overrides: {at: DateTime CODEC(ZSTD)}", columns(id=INT64, at=type_)) == []


def test_an_override_of_a_column_that_is_not_there_is_cautioned_against() -> None:
    fields = CLICKHOUSE + "schema_overrides: {_gs_op: DateTime, insert_time: DateTime64(3), nope: String}"
    (found,) = findings(fields, columns(id=INT64))
    assert isinstance(found, Caution) and "'nope'" in found.message


@pytest.mark.parametrize("type_", [decimal_arb(77, 0), decimal_arb(90, 3), list_of(decimal_arb(100, 0))])
def test_a_number_that_is_too_wide_needs_an_override_to_text(type_: DataType) -> None:
    (found,) = findings(CLICKHOUSE, columns(id=INT64, big=type_))
    assert isinstance(found, UserError) and "'big'" in found.message and "schema_override" in (found.hint or "")
    assert findings(CLICKHOUSE + "schema_override: {big: Nullable(String)}", columns(id=INT64, big=type_)) == []
    assert len(findings(CLICKHOUSE + "schema_override: {big: UInt256}", columns(id=INT64, big=type_))) == 1


def test_256_bit_integers_need_no_override() -> None:
    assert findings(CLICKHOUSE, columns(id=INT64, big=U256, wide=decimal(76, 10))) == []


@pytest.mark.parametrize("type_", [STRING, FLOAT64, decimal(10, 0), INTERVAL])
def test_a_version_is_a_whole_number_or_a_time(type_: DataType) -> None:
    rows = columns(id=INT64, v=type_)
    (found,) = findings(CLICKHOUSE + "version_column_name: v", rows)
    assert isinstance(found, UserError) and f"the version column 'v' is {type_}" in found.message
    assert findings(CLICKHOUSE + "version_column_name: v\nschema_override: {v: Int64}", rows) == []
    assert all(not findings(CLICKHOUSE + "version_column_name: v", columns(id=INT64, v=t)) for t in (U256, DATE, INT32))


def test_columns_that_a_clickhouse_table_cannot_have() -> None:
    (null,) = findings(CLICKHOUSE, columns(id=INT64, nothing=NULL))
    assert isinstance(null, UserError) and "'nothing' is always null" in null.message
    assert findings(CLICKHOUSE + "schema_override: {nothing: Nullable(Int8)}", columns(id=INT64, nothing=NULL)) == []
    (time,) = findings(CLICKHOUSE, columns(id=INT64, insert_time=TIMESTAMP))
    assert isinstance(time, UserError) and "the sink adds one of that name" in time.message
    for free in ("version_column_name: insert_time", "append_only_mode: false"):
        assert findings(CLICKHOUSE + free, columns(id=INT64, insert_time=TIMESTAMP)) == []
    (key,) = findings(CLICKHOUSE + "append_only_mode: false", columns(id=list_of(INT64)))
    assert isinstance(key, UserError) and "nothing can be deleted" in key.message


def test_plan_tells_what_a_clickhouse_table_needs() -> None:
    out = "{type: clickhouse, from: s, table: t, primary_key: id}"
    text = f"sources: {{s: {{type: generator, rows: 1, primary_key: id}}}}\nsinks: {{out: {out}}}"
    plan = make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))
    delivery = facts_of(plan, plan.sinks[0], Settings()).delivery
    assert delivery is not None and delivery.startswith("at least once; ") and "deduplication window" in delivery
