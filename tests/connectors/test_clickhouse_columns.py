"""What `--probe` learns from a real ClickHouse, and what it says when it learns nothing."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from streamling.cli.main import main
from streamling.connector import kinds
from streamling.engine.preparation import probe_sources
from streamling.errors import InvalidPipeline, StreamlingError
from streamling.plan.contract import Discovery
from streamling.sources.clickhouse.columns import ClickHouseTable, look_up_table
from streamling.spec.pipeline import PipelineSpec, load_pipeline
from streamling.spec.secret import Secret
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import ClickHouseSourceSettings
from support.clickhouse_columns import COLUMNS
from support.clickhouse_server import READER, READER_PASSWORD, ClickHouseServer
from support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers

SOURCE = "sources: {s: {type: clickhouse, %s}}\nsinks: {out: {type: print, from: s}}\n"
HYBRID = """\
sources:
  s:
    type: hybrid
    primary_key: id
    bounded_sources:
      - {source_type: clickhouse, table_name: shop.archive}
      - {source_type: clickhouse, table_name: %s}
    unbounded_source: {source_type: kafka, topic: orders}
sinks: {out: {type: print, from: s}}
"""
TOPIC = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": "long"} for name in ("id", "price", "at")],
}


@pytest.fixture(scope="module")
def schemas(schema_registry: SchemaRegistry) -> SchemaRegistry:
    schema_registry.register("orders-value", json.dumps(TOPIC))
    return schema_registry


def table(clickhouse: ClickHouseServer, name: str, columns: str, rest: str, **settings: Any) -> None:
    clickhouse.execute(f"CREATE OR REPLACE TABLE {name} ({columns}) ENGINE = {rest}", **settings)


def pipeline(options: str) -> PipelineSpec:
    return load_pipeline(SOURCE % options, "x.yaml", kinds.kinds())


def asked(url: str, options: str, **connection: Any) -> Discovery | StreamlingError:
    settings = Settings(application_id="über app", clickhouse_source=ClickHouseSourceSettings(url=url, **connection))
    return probe_sources(pipeline(options), settings)["s"]


def login(clickhouse: ClickHouseServer) -> dict[str, Any]:
    return {"user": clickhouse.user, "password": Secret(clickhouse.password)}


def found(clickhouse: ClickHouseServer, options: str, **connection: Any) -> Discovery:
    answer = asked(clickhouse.url, options, **(login(clickhouse) | connection))
    assert isinstance(answer, Discovery), answer
    return answer


def refused(clickhouse: ClickHouseServer, options: str, **connection: Any) -> StreamlingError:
    answer = asked(clickhouse.url, options, **(login(clickhouse) | connection))
    assert isinstance(answer, StreamlingError), answer
    return answer


def looked_up(clickhouse: ClickHouseServer, name: str) -> ClickHouseTable:
    (node,) = pipeline(f"table_name: {name}").sources
    connection = ClickHouseSourceSettings(url=clickhouse.url, **login(clickhouse))
    return look_up_table(node, name, Settings(clickhouse_source=connection), 10)


def columns(discovery: Discovery) -> dict[str, str]:
    return {f.name: f"{f.type} or null" if f.nullable else str(f.type) for f in discovery.schema}


def problems(capsys: pytest.CaptureFixture[str], file: Path) -> list[dict[str, Any]]:
    """The errors that `validate --probe` reports."""
    main(["validate", str(file), "--probe", "--format", "json"])
    answer = json.loads(capsys.readouterr().out)
    return [problem for problem in answer["problems"] if problem["severity"] == "error"]


# Columns


def test_every_type_of_a_table_is_found(clickhouse: ClickHouseServer) -> None:
    declared = ", ".join(f"{name} {column.type}" for name, column in COLUMNS.items())
    table(clickhouse, "shop.types", declared, "MergeTree ORDER BY i64")
    expected = {name: column.logical for name, column in COLUMNS.items()}
    assert columns(found(clickhouse, "table_name: shop.types")) == {**expected, "_gs_op": "string"}


def test_nested_columns_are_lists_flattened_or_not(clickhouse: ClickHouseServer) -> None:
    declared = "id Int64, n Nested(a Int8, b String)"
    table(clickhouse, "shop.flat", declared, "MergeTree ORDER BY id")
    table(clickhouse, "shop.deep", declared, "MergeTree ORDER BY id", flatten_nested=0)
    assert columns(found(clickhouse, "table_name: shop.flat"))["n.a"] == "list<int8>"
    assert columns(found(clickhouse, "table_name: shop.deep"))["n"] == "list<struct<a: int8, b: string>>"


def test_chosen_columns_stand_in_the_order_of_the_choice(clickhouse: ClickHouseServer) -> None:
    table(clickhouse, "shop.chosen", "id Int64, a String, b JSON, c Date", "MergeTree ORDER BY id")
    assert list(columns(found(clickhouse, "table_name: shop.chosen, columns: 'c, id'"))) == ["c", "id", "_gs_op"]


def test_an_operation_of_the_table_is_replaced(clickhouse: ClickHouseServer) -> None:
    table(clickhouse, "shop.operations", "_gs_op UInt8, id Int64", "MergeTree ORDER BY id")
    expected = {"id": "int64", "_gs_op": "string"}
    assert columns(found(clickhouse, "table_name: shop.operations")) == expected
    assert columns(found(clickhouse, "table_name: shop.operations, columns: '_gs_op, id'")) == expected


def test_columns_that_exist_in_inserts_only_are_left_out(clickhouse: ClickHouseServer) -> None:
    declared = "id Int64, e String EPHEMERAL, m String MATERIALIZED 'm', a String ALIAS m"
    table(clickhouse, "shop.computed", declared, "MergeTree ORDER BY id")
    assert list(columns(found(clickhouse, "table_name: shop.computed"))) == ["id", "m", "a", "_gs_op"]


def test_a_table_without_database_is_looked_up_in_that_of_the_settings(clickhouse: ClickHouseServer) -> None:
    table(clickhouse, "shop.here", "id Int64", "MergeTree ORDER BY id")
    assert found(clickhouse, "table_name: here", database="shop").primary_key == ("id",)
    assert refused(clickhouse, "table_name: here").code == "SCHEMA_NOT_FOUND"


@pytest.mark.parametrize("name", ["a b", "a`b", "a'b", "a\\b", "é", "select"])
def test_names_of_any_characters(clickhouse: ClickHouseServer, name: str) -> None:
    quoted = "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
    table(clickhouse, f"shop.{quoted}", f"{quoted} Int64, x Tuple({quoted} Int8)", f"MergeTree ORDER BY {quoted}")
    discovery = found(clickhouse, f"table_name: {json.dumps(f'shop.{name}')}")
    assert columns(discovery) == {name: "int64", "x": f"struct<{name}: int8>", "_gs_op": "string"}
    assert discovery.primary_key == (name,)


# Keys and engines


@pytest.mark.parametrize("type_", ["Int64", "UInt16", "String", "DateTime", "UUID"])
def test_the_key_is_the_whole_sorting_key(clickhouse: ClickHouseServer, type_: str) -> None:
    table(
        clickhouse, "shop.keys", f"b String, `a c` {type_}, d Date", "MergeTree ORDER BY (`a c`, b) PRIMARY KEY `a c`"
    )
    assert found(clickhouse, "table_name: shop.keys").primary_key == ("a c", "b")
    assert found(clickhouse, "table_name: shop.keys, primary_key: b").primary_key == ("b",)


def test_a_sorting_key_that_computes_something_is_no_key_of_rows(clickhouse: ClickHouseServer) -> None:
    table(clickhouse, "shop.computing", "id Int64, at DateTime", "MergeTree ORDER BY (id, toDate(at))")
    assert found(clickhouse, "table_name: shop.computing").primary_key == ()
    assert looked_up(clickhouse, "shop.computing").sorting_key == ("id", "toDate(at)")


@pytest.mark.parametrize(
    ("declared", "rest", "reason"),
    [
        ("id Int64", "MergeTree ORDER BY tuple()", "no sorting key"),
        ("id Int64", "Memory", "no sorting key"),
        ("id Int64", "MergeTree ORDER BY intDiv(id, 2)", "begins with intDiv(id, 2), which is not a column"),
        ("id Float64", "MergeTree ORDER BY id", "column 'id', which is Float64"),
        (
            "id Nullable(Int64)",
            "MergeTree ORDER BY id SETTINGS allow_nullable_key = 1",
            "column 'id', which is Nullable(Int64)",
        ),
    ],
)
def test_a_table_that_cannot_be_read_in_ranges_is_refused(
    clickhouse: ClickHouseServer, declared: str, rest: str, reason: str
) -> None:
    table(clickhouse, "shop.unranged", declared, rest)
    error = refused(clickhouse, "table_name: shop.unranged")
    assert (error.code, error.kind) == ("SCHEMA_UNUSABLE", "user error")
    assert error.message.startswith("clickhouse source 's': table 'shop.unranged' cannot be read: ")
    assert reason in error.message


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("MergeTree", (None, None)),
        ("SummingMergeTree(v)", (None, None)),
        ("ReplacingMergeTree", (None, None)),
        ("ReplacingMergeTree(v)", ("v", None)),
        ("ReplacingMergeTree(v, `is, deleted`)", ("v", "is, deleted")),
    ],
)
def test_engines_that_replace_name_version_and_tombstone(
    clickhouse: ClickHouseServer, engine: str, expected: tuple[str | None, str | None]
) -> None:
    declared = "id Int64, v UInt32, `is, deleted` UInt8"
    table(clickhouse, "shop.engines", declared, f"{engine} PARTITION BY intDiv(id, 10) ORDER BY id")
    described = looked_up(clickhouse, "shop.engines")
    assert (described.version, described.tombstone) == expected


def test_version_and_tombstone_are_in_the_rows_only_if_chosen(clickhouse: ClickHouseServer) -> None:
    table(clickhouse, "shop.versions", "id Int64, v UInt32, d UInt8", "ReplacingMergeTree(v, d) ORDER BY id")
    assert list(columns(found(clickhouse, "table_name: shop.versions"))) == ["id", "v", "d", "_gs_op"]
    assert list(columns(found(clickhouse, "table_name: shop.versions, columns: id"))) == ["id", "_gs_op"]


# What can be wrong


def test_columns_that_are_not_there_are_named_with_those_that_are(clickhouse: ClickHouseServer) -> None:
    table(clickhouse, "shop.few", "id Int64, name String", "MergeTree ORDER BY id")
    error = refused(clickhouse, "table_name: shop.few, columns: 'id, Name, age'")
    assert (error.code, error.kind) == ("INVALID_VALUE", "user error")
    assert error.message == "clickhouse source 's': table 'shop.few' has no columns [Name, age]"
    assert error.hint == "columns: id, name"
    assert error.where is not None


def test_all_columns_that_cannot_be_read_are_named_at_once(clickhouse: ClickHouseServer) -> None:
    declared = "id Int64, j JSON, a AggregateFunction(sum, UInt64), v Array(Variant(Int8, String))"
    table(clickhouse, "shop.odd", declared, "MergeTree ORDER BY id")
    error = refused(clickhouse, "table_name: shop.odd")
    assert isinstance(error, InvalidPipeline)
    assert [problem.code for problem in error.problems] == ["SCHEMA_UNUSABLE"] * 3
    assert [problem.message.partition(": ")[2] for problem in error.problems] == [
        "table 'shop.odd': the column 'j' has the ClickHouse type JSON, which cannot be read",
        "table 'shop.odd': the column 'a' has the ClickHouse type AggregateFunction(sum, UInt64), which cannot be read",
        "table 'shop.odd': the column 'v' has the ClickHouse type Array(Variant(Int8, String)), which cannot be read "
        "because of Variant(Int8, String)",
    ]


@pytest.mark.parametrize(
    ("name", "connection", "reason"),
    [
        ("shop.nothing", {}, "UNKNOWN_TABLE"),
        ("nowhere.t", {}, "UNKNOWN_DATABASE"),
        ("t", {"database": "nowhere"}, "UNKNOWN_DATABASE"),
        ("shop.t", {"user": READER, "password": Secret("wrong one")}, "AUTHENTICATION_FAILED"),
        ("default.t", {"user": READER, "password": Secret(READER_PASSWORD)}, "ACCESS_DENIED"),
    ],
)
def test_what_the_server_refuses_is_told_in_its_words_and_at_once(
    clickhouse: ClickHouseServer, name: str, connection: dict[str, Any], reason: str
) -> None:
    started = time.monotonic()
    error = refused(clickhouse, f"table_name: {name}", **connection)
    assert (error.code, error.kind) == ("SCHEMA_NOT_FOUND", "permanent error")
    assert f"failed to create ClickHouse source: failed to look up table '{name}'" in error.message
    assert reason in error.message
    assert "wrong one" not in error.message
    assert (error.where is not None, error.node) == (True, "s")
    assert time.monotonic() - started < 5


def test_a_user_who_may_only_read_can_look_up(clickhouse: ClickHouseServer) -> None:
    table(clickhouse, "shop.readable", "id Int64", "ReplacingMergeTree ORDER BY id")
    connection = {"user": READER, "password": Secret(READER_PASSWORD)}
    assert found(clickhouse, "table_name: shop.readable", **connection).primary_key == ("id",)


def test_a_server_that_is_down_is_asked_again_and_not_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    started = time.monotonic()
    error = asked(f"http://someone:hidden@127.0.0.1:{port}", "table_name: t")
    assert isinstance(error, StreamlingError)
    assert (error.code, error.kind) == ("SCHEMA_NOT_FOUND", "transient error")
    assert "does not answer" in error.message
    assert "hidden" not in error.message
    assert 0.2 <= time.monotonic() - started < 8


def test_a_server_that_never_answers_is_given_up() -> None:
    (node,) = pipeline("table_name: t").sources
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = Settings(
            clickhouse_source=ClickHouseSourceSettings(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        )
        started = time.monotonic()
        with pytest.raises(StreamlingError, match="does not answer: timed out"):
            look_up_table(node, "t", settings, 2.0)
        assert time.monotonic() - started < 4


@pytest.mark.parametrize("url", ["nonsense", "http://someone:hidden#@127.0.0.1:1", "http://127.0.0.1:port"])
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    error = asked(url, "table_name: t")
    assert isinstance(error, StreamlingError)
    assert (error.kind, "is not a valid URL" in error.message) == ("permanent error", True)
    assert "hidden" not in f"{error.message} {error.__cause__} {error.__cause__ and error.__cause__.__cause__}"


# From the command line


def test_validate_checks_queries_against_the_table(
    clickhouse: ClickHouseServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table(clickhouse, "shop.orders", "id Int64, price Decimal(10, 2)", "MergeTree ORDER BY id")
    for name, value in clickhouse.settings().items():
        monkeypatch.setenv(f"STREAMLING__{name}", str(value))
    (tmp_path / "x.yaml").write_text(
        "sources: {s: {type: clickhouse, table_name: shop.orders}}\n"
        "transforms: {t: {type: sql, primary_key: id, sql: 'SELECT id, pric FROM s'}}\n"
        "sinks: {out: {type: print, from: t}}\n"
    )
    assert [problem["code"] for problem in problems(capsys, tmp_path / "x.yaml")] == ["SQL_UNKNOWN_COLUMN"]


def test_every_table_of_a_hybrid_source_has_the_columns_of_the_topic(
    clickhouse: ClickHouseServer,
    schemas: SchemaRegistry,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in clickhouse.settings().items():
        monkeypatch.setenv(f"STREAMLING__{name}", str(value))
    monkeypatch.setenv("STREAMLING__KAFKA_SOURCE__SCHEMA_REGISTRY_URL", schemas.url)
    # Other types and further columns, even those that no source could read, do not matter.
    table(clickhouse, "shop.archive", "id UInt32, at String, price Int128, x JSON", "MergeTree ORDER BY id")
    table(clickhouse, "shop.short", "id Int64, cost Int64", "MergeTree ORDER BY id")
    file = tmp_path / "x.yaml"
    file.write_text(HYBRID % "shop.archive")
    assert problems(capsys, file) == []
    file.write_text(HYBRID % "shop.short")
    (problem,) = problems(capsys, file)
    assert problem["code"] == "SCHEMA_UNUSABLE"
    assert problem["message"] == "hybrid source 's': table 'shop.short' lacks columns of the topic: [price, at]"
    assert (problem["line"], problem["hint"]) == (7, "columns of the table: id, cost")


def test_a_table_of_a_hybrid_source_that_is_not_there_is_named(
    clickhouse: ClickHouseServer,
    schemas: SchemaRegistry,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in clickhouse.settings().items():
        monkeypatch.setenv(f"STREAMLING__{name}", str(value))
    monkeypatch.setenv("STREAMLING__KAFKA_SOURCE__SCHEMA_REGISTRY_URL", schemas.url)
    table(clickhouse, "shop.archive", "id Int64, at Int64", "MergeTree ORDER BY id")
    (tmp_path / "x.yaml").write_text(HYBRID % "shop.nothing")
    short, missing = problems(capsys, tmp_path / "x.yaml")
    assert (short["code"], missing["code"]) == ("SCHEMA_UNUSABLE", "SCHEMA_NOT_FOUND")
    assert "[price]" in short["message"]
    assert "UNKNOWN_TABLE" in missing["message"]
