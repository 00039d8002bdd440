"""What the YAML of kafka, clickhouse, hybrid and file sources may say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streamling.errors import Caution, UserError
from streamling.plan.contract import ChecksColumns, DeclaresColumns
from streamling.plan.types import INT32, INT64, STRING, DataType, Schema, decimal, list_of
from streamling.sources.clickhouse import ClickHouseSourceOptions
from streamling.sources.file import Bounded, Continuous, FileSourceOptions
from streamling.sources.hybrid import BoundedFiles, HybridOptions, UnboundedFiles, UnboundedTopic
from streamling.sources.kafka import DataFormat, KafkaSourceOptions, MissingOffsets, Tombstones
from support.node_samples import columns, node, problem, problems


def kafka(fields: str) -> KafkaSourceOptions:
    options = node("source", f"type: kafka\ntopic: t\n{fields}").options
    assert isinstance(options, KafkaSourceOptions)
    return options


def kafka_columns(fields: str) -> Schema | None:
    spec = node("source", f"type: kafka\ntopic: t\n{fields}")
    assert isinstance(spec.options, DeclaresColumns)
    return spec.options.output_schema(spec)


def findings(fields: str, rows: Schema, key: tuple[str, ...] = ()) -> list[UserError | Caution]:
    spec = node("source", fields)
    assert isinstance(spec.options, ChecksColumns)
    return list(spec.options.check_columns(spec, rows, key))


# kafka


def test_a_kafka_source_reads_avro_from_the_beginning_unless_told_otherwise() -> None:
    options = kafka("")
    assert (options.data_format, options.starting_offsets) == (DataFormat.AVRO, "earliest")
    assert (options.tombstones, options.on_missing_offsets) == (Tombstones.SKIP, MissingOffsets.FAIL)
    assert options.validate_writer_schema_ordering and not options.skip_schema_resolution
    assert (options.parallelism, options.batch_size, options.batch_flush_interval) == (None, None, None)
    assert not options.ends


def test_the_payload_format_ignores_case() -> None:
    assert kafka("data_format: Json\nschema: {a: int64}").data_format is DataFormat.JSON
    assert problem("source", "type: kafka\ntopic: t\ndata_format: csv")[:2] == ("INVALID_VALUE", 5)


def test_declared_columns_stand_in_alphabetical_order_before_metadata_and_the_operation() -> None:
    schema = kafka_columns("data_format: json\ninclude_metadata: true\nschema: {b: 'decimal(20,4)', a: Int64, C: utf8}")
    assert schema is not None
    assert [(f.name, f.type, f.nullable) for f in schema] == [
        ("C", STRING, True),
        ("a", INT64, True),
        ("b", decimal(20, 4), True),
        ("__kafka_partition", INT32, False),
        ("__kafka_offset", INT64, False),
        ("__kafka_timestamp", DataType("timestamp", unit="ms"), False),
        ("_gs_op", STRING, False),
    ]


def test_a_declared_operation_column_stands_last_too() -> None:
    schema = kafka_columns("data_format: json\nschema: {_gs_op: string, a: int64}")
    assert schema is not None and schema.names == ("a", "_gs_op")


def test_the_columns_of_avro_are_not_in_the_file() -> None:
    assert kafka_columns("data_format: avro") is None


def test_json_needs_columns_and_avro_must_not_have_them() -> None:
    code, line, message = problem("source", "type: kafka\ntopic: t\ndata_format: json")
    assert (code, line) == ("MISSING_FIELD", 2) and "'schema' is missing" in message
    assert problem("source", "type: kafka\ntopic: t\nschema: {a: int64}")[:2] == ("INVALID_VALUE", 5)
    assert problem("source", "type: kafka\ntopic: t\ndata_format: json\nschema: {}")[:2] == ("INVALID_VALUE", 6)


def test_a_type_that_does_not_exist_is_reported_at_its_column() -> None:
    found = problems(
        "source",
        """\
        type: kafka
        topic: t
        data_format: json
        schema:
          good: int64
          bad: money
          worse: 5
        """,
    )
    assert [(p.code, str(p.where)) for p in found] == [("INVALID_VALUE", "p.yaml:8:12"), ("WRONG_TYPE", "p.yaml:9:14")]
    assert "'schema.bad'" in found[0].message and "unsupported data type 'money'; accepted: int8" in found[0].message


def test_nested_columns_are_maps_and_lists_of_types_or_text() -> None:
    schema = kafka_columns(
        """data_format: json
schema:
  user: {name: string, tags: [text], home: {lat: double precision}}
  items: [{sku: varchar(20), prices: ["numeric(12,2)"]}]
  labels: {"*": bigint}
  same: struct<name:string,tags:list<string>,home:struct<lat:float64>>"""
    )
    assert schema is not None
    types = {f.name: f.type for f in schema}
    assert {name: str(type_) for name, type_ in types.items() if name != "same"} == {
        "user": "struct<name: string, tags: list<string>, home: struct<lat: float64>>",
        "items": "list<struct<sku: string, prices: list<decimal(12,2)>>>",
        "labels": "map<string, int64>",
        "_gs_op": "string",
    }
    assert types["same"] == types["user"]


@pytest.mark.parametrize(
    ("column", "code", "fragment"),
    [
        ("{b: [money]}", "INVALID_VALUE", "'schema.a.b[0]' has an invalid type: unsupported data type 'money'"),
        ("{b: {c: 5}}", "WRONG_TYPE", "'schema.a.b.c' must be a type: a name such as int64, a map of the fields"),
        ("{b: }", "WRONG_TYPE", "'schema.a.b' must be a type"),
        ("{}", "WRONG_TYPE", "'schema.a' must be a type"),
        ("[]", "WRONG_TYPE", "'schema.a' must have one type, that of all items, not 0"),
        ('{"*": int64, b: int64}', "INVALID_VALUE", "'schema.a' must have '*' alone"),
        ("{b: decimal(12,2)}", "INVALID_VALUE", "'schema.a.b' has an invalid type: 'decimal(12' is cut off"),
        ("{b: map<string,int64>}", "INVALID_VALUE", "'schema.a.b' has an invalid type: 'map<string' is cut off"),
    ],
)
def test_a_wrong_type_inside_of_another_is_reported_at_its_place(column: str, code: str, fragment: str) -> None:
    (found,) = problems("source", f"type: kafka\ntopic: t\ndata_format: json\nschema:\n  a: {column}")
    assert found.code == code
    assert fragment in found.message


def test_raw_payloads_are_one_column_of_text_or_bytes() -> None:
    schema, named = kafka_columns("data_format: raw"), kafka_columns("data_format: raw\nschema: {body: bytea}")
    assert schema is not None and named is not None
    assert [(f.name, str(f.type)) for f in schema] == [("value", "string"), ("_gs_op", "string")]
    assert [(f.name, str(f.type)) for f in named] == [("body", "binary"), ("_gs_op", "string")]


@pytest.mark.parametrize(
    ("fields", "fragment"),
    [
        ("data_format: raw\nschema: {a: string, b: string}", "'schema' must have one column with 'data_format: raw'"),
        ("data_format: raw\nschema: {a: int64}", "'schema.a' is int64; with 'data_format: raw' it must be string"),
        ("data_format: raw\nschema: {_gs_op: string}", "'schema' must not name the payload '_gs_op'"),
        ("data_format: raw\nenvelope: debezium", "'envelope' is not allowed with 'data_format: raw'"),
        ("data_format: json\nschema: {_gs_op: string}\nenvelope: debezium", "but 'schema' declares '_gs_op' too"),
        ("envelope: debezum", "'envelope' is 'debezum'; accepted: debezium"),
    ],
)
def test_formats_and_envelopes_that_do_not_go_together_are_refused(fields: str, fragment: str) -> None:
    code, _, message = problem("source", f"type: kafka\ntopic: t\n{fields}")
    assert code == "INVALID_VALUE" and fragment in message


def test_tombstones_of_raw_messages_delete_nothing() -> None:
    fields = "type: kafka\ntopic: t\ndata_format: raw\nprimary_key: value\ntombstones: delete"
    (found,) = findings(fields, columns(value=STRING), ("value",))
    assert "needs key columns" in found.message


def test_files_of_json_lines_have_nested_columns_too() -> None:
    options = node("source", "type: file\npath: a\nformat: json\nschema: {a: {b: [int]}}").options
    assert isinstance(options, FileSourceOptions) and options.schema_ is not None
    assert str(options.schema_["a"]) == "struct<b: list<int32>>"
    for format_, type_, fragment in (
        ("csv", "{b: int}", "is struct<b: int32>, which csv files cannot contain"),
        ("json", "{b: time64}", "is struct<b: time64>, which has time64, which text files cannot contain"),
        ("json", '{"*": int}', "is map<string, int32>, which text files cannot contain"),
    ):
        _, _, message = problem("source", f"type: file\npath: a\nformat: {format_}\nschema: {{a: {type_}}}")
        assert fragment in message


def test_the_operation_column_must_be_text() -> None:
    found = problem("source", "type: kafka\ntopic: t\ndata_format: json\nschema: {a: int64, _gs_op: int64}")
    assert found[0] == "INVALID_VALUE" and "'schema._gs_op'" in found[2]


def test_metadata_must_not_meet_a_declared_column_of_its_name() -> None:
    fields = "type: kafka\ntopic: t\ndata_format: json\nschema: {__kafka_offset: int64}\ninclude_metadata: true"
    code, line, message = problem("source", fields)
    assert (code, line) == ("INVALID_VALUE", 7) and "'__kafka_offset'" in message


@pytest.mark.parametrize("offsets", ["earliest", "latest", "'1700000000000'"])
def test_reading_starts_at_a_word_or_a_time(offsets: str) -> None:
    assert kafka(f"starting_offsets: {offsets}").starting_offsets == offsets.strip("'")


@pytest.mark.parametrize("offsets", ["Earliest", "now", "'-5'", "'1e3'", "''", "'99999999999999999999'", "'٣'"])
def test_other_starting_offsets_are_refused_with_the_accepted_ones(offsets: str) -> None:
    code, line, message = problem("source", f"type: kafka\ntopic: t\nstarting_offsets: {offsets}")
    assert (code, line) == ("INVALID_VALUE", 5) and "accepted: earliest, latest" in message


def test_a_time_without_quotes_is_told_to_have_some() -> None:
    code, _, message = problem("source", "type: kafka\ntopic: t\nstarting_offsets: 1700000000000")
    assert code == "WRONG_TYPE" and "'1700000000000'" in message


def test_a_schema_id_is_overridden_once() -> None:
    twice = "schema_id_overrides: [{from: 7, to: 1}, {from: 8, to: 1}, {from: 7, to: 2}]"
    code, line, message = problem("source", f"type: kafka\ntopic: t\n{twice}")
    assert (code, line) == ("INVALID_VALUE", 5) and "7" in message
    overrides = kafka("schema_id_overrides: [{from: 7, to: 1}, {from: 8, to: 1}]").schema_id_overrides
    assert [(o.from_, o.to) for o in overrides] == [(7, 1), (8, 1)]


@pytest.mark.parametrize(
    ("field", "accepted"),
    [("tombstones: Delete", "skip, delete, error"), ("on_missing_offsets: skip", "fail, earliest, latest")],
)
def test_choices_of_a_kafka_source_are_compared_exactly(field: str, accepted: str) -> None:
    code, line, message = problem("source", f"type: kafka\ntopic: t\n{field}")
    assert (code, line) == ("INVALID_VALUE", 5) and f"accepted: {accepted}" in message


@pytest.mark.parametrize(
    "field", ["topic: 5", "batch_size: '100'", "include_metadata: 'yes'", "schema_id_overrides: [{from: a, to: 1}]"]
)
def test_values_of_another_yaml_type_are_refused(field: str) -> None:
    fields = f"type: kafka\n{field}" + ("" if field.startswith("topic") else "\ntopic: t")
    assert problem("source", fields)[:2] == ("WRONG_TYPE", 4)


def test_tombstones_that_delete_need_a_key() -> None:
    fields = "type: kafka\ntopic: t\ntombstones: delete"
    (found,) = findings(fields, columns(a=INT64))
    assert isinstance(found, UserError)
    assert (found.code, str(found.where)) == ("MISSING_FIELD", "p.yaml:5:17")
    assert "primary key" in found.message
    assert findings(fields, columns(a=INT64), ("a",)) == []


def test_tombstones_that_delete_need_a_key_of_simple_columns() -> None:
    fields = "type: kafka\ntopic: t\ntombstones: delete"
    rows = columns(a=INT64, b=list_of(INT64))
    (found,) = findings(fields, rows, ("a", "b"))
    assert isinstance(found, UserError)
    assert (found.code, str(found.where)) == ("INVALID_VALUE", "p.yaml:5:17")
    assert "cannot read 'b' from message keys: it is list<int64>" in found.message
    assert findings(fields, rows, ("a",)) == []


def test_a_filter_over_a_column_that_is_not_there() -> None:
    fields = "type: kafka\ntopic: t\nfilter: |\n  amount > 1\n  AND totl > 5\n"
    (found,) = findings(fields, columns(amount=INT64, total=INT64))
    assert isinstance(found, UserError)
    assert (found.code, found.node, str(found.where)) == ("SOURCE_FILTER", "n", "p.yaml:7:11")
    assert "kafka source 'n': failed to create Kafka source" in found.message
    assert "No field named totl" in found.message
    assert (found.message + (found.hint or "")).count("Did you mean") == 1
    assert found.__cause__ is None


@pytest.mark.parametrize(("condition", "code"), [("amount + 1", "SQL_TYPES"), ("amount >", "SQL_SYNTAX")])
def test_a_filter_that_is_no_condition(condition: str, code: str) -> None:
    (found,) = findings(f"type: kafka\ntopic: t\nfilter: {condition}", columns(amount=INT64))
    assert found.code == code and "failed to create Kafka source" in found.message
    assert found.where is not None and found.where.line == 5


@pytest.mark.parametrize("condition", ["amount > 1", "'null'", "_gs_op = 'i' OR amount IS NULL"])
def test_a_filter_that_can_be_used(condition: str) -> None:
    assert findings(f"type: kafka\ntopic: t\nfilter: {condition}", columns(amount=INT64)) == []


# clickhouse


def test_a_clickhouse_source_names_a_table() -> None:
    options = node("source", "type: clickhouse\ntable_name: db.t\ncolumns: a, b ,\nstart_at: '-5, x'").options
    assert isinstance(options, ClickHouseSourceOptions)
    assert (options.table_name, options.columns, options.start_at) == ("db.t", ("a", "b"), "-5, x")
    assert options.ends
    assert problem("source", "type: clickhouse")[:2] == ("MISSING_FIELD", 2)


@pytest.mark.parametrize(
    ("field", "code"),
    [("start_at: 5", "WRONG_TYPE"), ("columns: [a, b]", "WRONG_TYPE")],
)
def test_what_a_clickhouse_source_refuses(field: str, code: str) -> None:
    assert problem("source", f"type: clickhouse\ntable_name: t\n{field}")[:2] == (code, 5)


# hybrid

HYBRID = """\
type: hybrid
bounded_sources:
  - {source_type: clickhouse, table_name: old, start_at: '5', columns: a}
  - {source_type: clickhouse, table_name: new}
unbounded_source: {source_type: kafka, topic: t, start_at: latest}
"""


def test_a_hybrid_source_has_phases() -> None:
    options = node("source", HYBRID + "offset_table: {topic_name: t_v1}").options
    assert isinstance(options, HybridOptions)
    assert [getattr(phase, "table_name", None) for phase in options.bounded_sources] == ["old", "new"]
    assert isinstance(options.unbounded_source, UnboundedTopic)
    assert options.unbounded_source.start_at == "latest"
    table = options.offset_table
    assert table is not None and table.topic_name == "t_v1"
    assert (table.table_name, table.topic_column, table.partition_column, table.offset_column) == (
        "kafka_offsets",
        "topic",
        "partition",
        "offset",
    )
    assert options.ends


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ("source_type: kafka", "source_type: kinesis", "INVALID_VALUE", 7),
        ("source_type: kafka, topic: t, start_at: latest", "source_type: file, path: in", "MISSING_FIELD", 7),
        ("source_type: clickhouse, table_name: new", "source_type: postgres, table_name: new", "INVALID_VALUE", 6),
        ("source_type: clickhouse, table_name: new", "table_name: new", "MISSING_FIELD", 6),
        ("topic: t, ", "", "MISSING_FIELD", 7),
        ("topic: t, ", "topic: t, include_metadata: true, ", "UNKNOWN_FIELD", 7),
        ("start_at: latest", "start_at: last", "INVALID_VALUE", 7),
        ("start_at: '5'", "start_at: latest", "INVALID_VALUE", 5),
        ("start_at: latest", "tombstones: delete", "MISSING_FIELD", 7),
        ("type: hybrid", "type: hybrid\nparallelism: 2", "UNKNOWN_FIELD", 4),
        ("type: hybrid", "type: hybrid\noffset_table: {}", "MISSING_FIELD", 4),
    ],
)
def test_the_maps_of_a_hybrid_source_are_strict(old: str, new: str, code: str, line: int) -> None:
    assert problem("source", HYBRID.replace(old, new, 1))[:2] == (code, line)


def test_the_phases_of_a_hybrid_source_may_be_files() -> None:
    fields = """\
type: hybrid
bounded_sources:
  - {source_type: file, path: old, format: parquet}
unbounded_source: {source_type: file, path: new, format: jsonl, poll_interval: 1s, schema: {a: int64}}
"""
    options = node("source", fields).options
    assert isinstance(options, HybridOptions)
    assert isinstance(options.bounded_sources[0], BoundedFiles)
    assert isinstance(options.unbounded_source, UnboundedFiles)
    assert (options.unbounded_source.poll_interval, options.row_filter) == (timedelta(seconds=1), None)
    assert problem("source", fields + "offset_table: {topic_name: t}")[:2] == ("INVALID_VALUE", 7)
    assert problem("source", fields.replace("parquet", "parquet, schema: {a: int64}"))[:2] == ("UNKNOWN_FIELD", 5)


def test_a_hybrid_source_needs_a_bounded_phase() -> None:
    fields = "type: hybrid\nbounded_sources: []\nunbounded_source: {source_type: kafka, topic: t}"
    assert problem("source", fields)[:2] == ("INVALID_VALUE", 4)


def test_a_hybrid_source_with_a_key_may_delete_by_tombstones() -> None:
    options = node("source", HYBRID.replace("start_at: latest", "tombstones: delete") + "primary_key: a").options
    assert isinstance(options, HybridOptions)
    assert isinstance(options.unbounded_source, UnboundedTopic)
    assert (options.unbounded_source.tombstones, options.primary_key) == (Tombstones.DELETE, ("a",))


def test_the_filter_of_the_unbounded_phase_is_checked_in_its_place() -> None:
    fields = HYBRID.replace("start_at: latest", "filter: missing > 1")
    (found,) = findings(fields, columns(a=INT64))
    assert (found.code, str(found.where)) == ("SOURCE_FILTER", "p.yaml:7:62")


# file


def file(fields: str) -> FileSourceOptions:
    options = node("source", f"type: file\npath: in\nformat: jsonl\n{fields}").options
    assert isinstance(options, FileSourceOptions)
    return options


def test_a_file_source_goes_on_unless_it_is_bounded() -> None:
    assert file("").mode == Continuous(type="continuous", poll_interval=timedelta(seconds=5))
    assert file("mode: {type: continuous, poll_interval: 1m}").mode == Continuous(
        type="continuous", poll_interval=timedelta(minutes=1)
    )
    assert not file("").ends
    assert file("mode: {type: bounded}").mode == Bounded(type="bounded")
    assert file("mode: {type: bounded}").ends


@pytest.mark.parametrize("word", ["bounded", "continuous"])
def test_a_mode_as_plain_text_is_shown_the_right_form(word: str) -> None:
    code, line, message = problem("source", f"type: file\npath: in\nformat: csv\nmode: {word}")
    assert (code, line) == ("WRONG_TYPE", 6) and f"mode: {{type: {word}}}" in message


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("{type: bounded, poll_interval: 5s}", "UNKNOWN_FIELD"),
        ("{type: once}", "INVALID_VALUE"),
        ("{}", "MISSING_FIELD"),
        ("{type: continuous, poll_interval: 5 parsecs}", "INVALID_VALUE"),
    ],
)
def test_a_mode_is_strict(mode: str, code: str) -> None:
    assert problem("source", f"type: file\npath: in\nformat: csv\nmode: {mode}")[:2] == (code, 6)


@pytest.mark.parametrize("path", ["in/*.csv", "/data", "s3://bucket/x", "s3a://bucket/x", "gs://bucket/x"])
def test_paths_a_file_source_can_read(path: str) -> None:
    assert node("source", f"type: file\npath: {path}\nformat: csv")


@pytest.mark.parametrize("path", ["hdfs://x/y", "https://x/y", "file:///x"])
def test_a_path_of_another_scheme_is_refused(path: str) -> None:
    code, line, message = problem("source", f"type: file\npath: {path}\nformat: csv")
    assert (code, line) == ("INVALID_VALUE", 4)
    assert "unsupported scheme" in message and "s3a://" in message


def test_file_formats_are_lower_case_words() -> None:
    code, line, message = problem("source", "type: file\npath: in\nformat: CSV")
    assert (code, line) == ("INVALID_VALUE", 5) and "ndjson" in message


# labels


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ("type: kafka\ntopic: t", "topic"),
        ("type: clickhouse\ntable_name: t", "table"),
        (HYBRID, "table"),
        (HYBRID, "topic"),
        ("type: file\npath: x\nformat: csv", "path"),
    ],
)
def test_the_identity_of_a_source_is_not_a_label_to_set(fields: str, label: str) -> None:
    code, _, message = problem("source", f"{fields}\ntelemetry: {{labels: {{{label}: x}}}}")
    assert code == "INVALID_VALUE" and f"'{label}'" in message
