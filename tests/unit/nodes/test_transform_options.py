"""What the YAML of handler, script and dynamic_table transforms may say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streamling.errors import Caution
from streamling.plan.contract import ReshapesRows
from streamling.plan.types import INT64, OPERATION_FIELD, STRING, Field, Schema
from streamling.transforms.dynamic_table import Backend, DynamicTableOptions, Populate
from streamling.transforms.script import ScriptOptions
from support.node_samples import columns, loaded, node, problem

HANDLER = "type: handler\nfrom: s\nprimary_key: id\nurl: http://h\n"
SCRIPT = "type: script\nfrom: s\nprimary_key: id\nlanguage: ts\nscript: r => r\n"
ROWS = Schema((Field("id", INT64, nullable=False), Field("name", STRING), OPERATION_FIELD))


def reshaped(fields: str, rows: Schema = ROWS) -> list[tuple[str, str, bool]]:
    spec = node("transform", fields)
    assert isinstance(spec.options, ReshapesRows)
    return [(f.name, str(f.type), f.nullable) for f in spec.options.reshaped(spec, rows)]


# handler


def test_a_handler_gives_the_columns_it_gets() -> None:
    assert reshaped(HANDLER) == [("id", "int64", False), ("name", "string", True), ("_gs_op", "string", False)]


def test_a_handler_removes_changes_and_adds_columns() -> None:
    override = "schema_override: {zone: string, name: null, id: int32, Alpha: float64, absent: null, _gs_op: string}"
    assert reshaped(HANDLER + override) == [
        ("id", "int32", False),
        ("Alpha", "float64", True),
        ("zone", "string", True),
        ("_gs_op", "string", False),
    ]


@pytest.mark.parametrize("type_", ["null", "int64"])
def test_a_handler_keeps_the_operation(type_: str) -> None:
    code, line, message = problem("transform", HANDLER + f"schema_override: {{_gs_op: {type_}}}")
    assert (code, line) == ("INVALID_VALUE", 7) and "'schema_override._gs_op'" in message


def test_an_override_with_a_type_that_does_not_exist_is_reported_at_its_column() -> None:
    code, line, message = problem("transform", HANDLER + "schema_override:\n  a: null\n  b: money\n")
    assert (code, line) == ("INVALID_VALUE", 9) and "unsupported data type 'money'" in message


# script


def script(fields: str) -> ScriptOptions:
    options = node("transform", SCRIPT + fields).options
    assert isinstance(options, ScriptOptions)
    return options


def test_a_script_that_declares_columns_gives_them_in_alphabetical_order() -> None:
    assert reshaped(SCRIPT + "schema: {b: float64, id: Utf8, A: int64}") == [
        ("A", "int64", True),
        ("b", "float64", True),
        ("id", "string", True),
        ("_gs_op", "string", False),
    ]


def test_an_operation_that_a_script_declares_stands_in_its_place() -> None:
    names = [name for name, _, _ in reshaped(SCRIPT + "schema: {id: int64, Z: int64, _gs_op: string}")]
    assert names == ["Z", "_gs_op", "id"]


def test_a_script_without_columns_may_leave_out_any_it_gets() -> None:
    assert reshaped(SCRIPT) == [("id", "int64", True), ("name", "string", True), ("_gs_op", "string", False)]


@pytest.mark.parametrize("columns_", ["{}", "{a: money}", "{_gs_op: int64}", "{'': int64}"])
def test_columns_a_script_cannot_declare(columns_: str) -> None:
    assert problem("transform", SCRIPT + f"schema: {columns_}")[:2] == ("INVALID_VALUE", 8)


@pytest.mark.parametrize("language", ["python", "JS"])
def test_a_script_is_written_in_one_of_two_languages(language: str) -> None:
    code, line, message = problem("transform", SCRIPT.replace("ts\n", f"{language}\n"))
    assert (code, line) == ("INVALID_VALUE", 6) and "javascript, js, typescript, ts" in message


@pytest.mark.parametrize(
    ("fields", "size", "interval"),
    [
        ("", None, None),
        ("batch_size: 0", None, None),
        ("batch_size: 5", 5, timedelta(seconds=1)),
        ("batch_size: 5\nbatch_flush_interval: 3s", 5, timedelta(seconds=3)),
        ("batch_size: 0\nbatch_flush_interval: 3s", None, timedelta(seconds=3)),
    ],
)
def test_the_batches_of_a_script(fields: str, size: int | None, interval: timedelta | None) -> None:
    options = script(fields)
    assert (options.batch_size, options.batch_flush_interval) == (size, interval)


def test_a_batch_of_less_than_nothing_is_refused() -> None:
    assert problem("transform", SCRIPT + "batch_size: -1")[:2] == ("INVALID_VALUE", 8)


def test_the_language_is_not_a_label_to_set() -> None:
    assert problem("transform", SCRIPT + "telemetry: {labels: {language: x}}")[0] == "INVALID_VALUE"


# dynamic_table


def table(fields: str, backend: str = "Postgres") -> DynamicTableOptions:
    options = node(
        "transform", f"type: dynamic_table\nbackend_type: {backend}\nbackend_entity_name: seen\n{fields}"
    ).options
    assert isinstance(options, DynamicTableOptions)
    return options


def cautions(fields: str, backend: str = "Postgres") -> list[Caution]:
    spec = node("transform", f"type: dynamic_table\nbackend_type: {backend}\nbackend_entity_name: seen\n{fields}")
    assert isinstance(spec.options, DynamicTableOptions)
    found = list(spec.options.check_columns(spec, columns(), ()))
    assert all(isinstance(one, Caution) for one in found)
    return [one for one in found if isinstance(one, Caution)]


def test_a_dynamic_table_without_more() -> None:
    options = table("")
    assert (options.column, options.schema_, options.time_column, options.cache) == ("value", None, None, None)
    assert (options.populate, options.same_input) == (Populate.BEFORE, True)


@pytest.mark.parametrize(
    ("written", "backend"),
    [("in_memory", Backend.IN_MEMORY), ("In-Memory", Backend.IN_MEMORY), ("POSTGRES", Backend.POSTGRES)],
)
def test_a_backend_ignores_case_and_punctuation(written: str, backend: Backend) -> None:
    assert table("", written).backend_type is backend


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    code, line, message = problem("transform", "type: dynamic_table\nbackend_type: redis\nbackend_entity_name: x")
    assert (code, line) == ("INVALID_VALUE", 4) and "Postgres, InMemory" in message


def test_a_dynamic_table_may_have_the_name_of_a_node() -> None:
    spec = loaded(
        "sources: {users: {type: kafka, topic: t}}\n"
        "transforms: {users: {type: dynamic_table, backend_type: InMemory, backend_entity_name: u}}\nsinks: {}\n"
    )
    assert [n.ref for n in spec.nodes] == ["users", "users"]


@pytest.mark.parametrize("field", ["schema: a-b", "column: 1a", "time_column: 'a b'", "schema: 'x\"y'"])
def test_names_in_postgres_are_plain_identifiers(field: str) -> None:
    fields = f"type: dynamic_table\nbackend_type: Postgres\nbackend_entity_name: x\n{field}"
    assert problem("transform", fields)[:2] == ("INVALID_VALUE", 6)
    assert table(field, "InMemory")


def test_the_name_of_a_table_in_postgres_is_a_plain_identifier() -> None:
    fields = "type: dynamic_table\nbackend_type: Postgres\nbackend_entity_name: a.b"
    assert problem("transform", fields)[:2] == ("INVALID_VALUE", 5)


@pytest.mark.parametrize("field", ["populate: before", "populate: after", "same_input: true", "same_input: false"])
def test_how_a_query_fills_a_table_is_said_only_where_there_is_one(field: str) -> None:
    fields = f"type: dynamic_table\nbackend_type: Postgres\nbackend_entity_name: x\n{field}"
    code, line, message = problem("transform", fields)
    assert (code, line) == ("INVALID_VALUE", 6) and "'sql'" in message
    assert table(f"{field}\nsql: SELECT a FROM s")


@pytest.mark.parametrize(
    "field", ["from: s", "primary_key: id", "cache_refresh_debounce_ms: -1", "populate: later\nsql: SELECT a FROM s"]
)
def test_what_a_dynamic_table_does_not_have(field: str) -> None:
    fields = f"type: dynamic_table\nbackend_type: Postgres\nbackend_entity_name: x\n{field}"
    assert problem("transform", fields)[1] == 6


def test_a_cache_without_a_time_is_cautioned_against() -> None:
    (found,) = cautions("cache: true")
    assert "time_column" in found.message and str(found.where) == "p.yaml:6:12"
    assert cautions("cache: true\ntime_column: at") == []
    assert cautions("cache: true", "InMemory") == []


def test_a_debounce_is_cautioned_against_because_texts_come_late() -> None:
    (found,) = cautions("cache: true\ntime_column: at\ncache_refresh_debounce_ms: 500")
    assert "500 ms" in found.message and found.where is not None and found.where.line == 8
    assert cautions("cache: true\ntime_column: at\ncache_refresh_debounce_ms: 0") == []
    assert cautions("cache: false\ncache_refresh_debounce_ms: 500") == []
