"""The pipeline file becomes nodes with typed options, or a list of all its problems."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.errors import InvalidPipeline, StreamlingError, UserError, Where
from streamling.spec.pipeline import PipelineSpec, Role, load_pipeline, read_pipeline
from streamling.spec.pipeline.options import FileLetters, OnError
from support.node_kinds import KINDS, KafkaSource, PluginSink, PrintSink, Sql

ORDERS = """\
name: shop
sources:
  Shop.Orders:
    type: kafka
    topic: shop.orders.v1
    primary_key: " order_id , , tenant"
    batch_size: 100
    batch_flush_interval: 1m 30s
transforms:
  big:
    type: sql
    primary_key: order_id
    sql: |
      SELECT *
      FROM shop.orders
sinks:
  out:
    type: print
    from: big
    compression: GZip
"""


def loaded(text: str) -> PipelineSpec:
    pipeline = load_pipeline(text, "p.yaml", KINDS)
    assert pipeline.problems == ()
    return pipeline


def problems(text: str) -> list[StreamlingError]:
    try:
        return list(load_pipeline(text, "p.yaml", KINDS).problems)
    except InvalidPipeline as error:
        return list(error.problems)


def problem(text: str) -> StreamlingError:
    found = problems(text)
    assert len(found) == 1, [error.message for error in found]
    return found[0]


def node(fields: str) -> str:
    """A pipeline with one source that has these fields."""
    return f"sources:\n  s: {{type: kafka, {fields}}}\nsinks: {{}}\n"


def test_nodes_come_with_names_options_and_places() -> None:
    spec = loaded(ORDERS)
    source = spec.sources[0]
    assert (source.role, source.name, source.ref, source.type) == (Role.SOURCE, "Shop.Orders", "shop.orders", "kafka")
    assert isinstance(source.options, KafkaSource)
    assert source.options.primary_key == ("order_id", "tenant")
    assert source.options.batch_flush_interval == timedelta(seconds=90)
    assert source.where == Where("p.yaml", 3, 3)
    assert source.locate("topic") == Where("p.yaml", 5, 12)
    assert source.locate("filter") == source.where
    sink = spec.sinks[0].options
    assert isinstance(sink, PrintSink)
    assert sink.from_ == "big"
    assert sink.compression == "gzip"
    assert [each.name for each in spec.nodes] == ["Shop.Orders", "big", "out"]


def test_a_position_in_sql_leads_to_the_file() -> None:
    transform = loaded(ORDERS).transforms[0]
    assert isinstance(transform.options, Sql)
    assert transform.text_locator("sql")(2, 6) == Where("p.yaml", 15, 12)
    assert transform.text_locator("nothing")(1, 1) is None


def test_nodes_cannot_be_changed_and_can_be_hashed() -> None:
    spec = loaded(ORDERS)
    with pytest.raises(AttributeError):
        spec.sources[0].name = "x"  # type: ignore[misc]
    assert len(set(spec.nodes)) == 3


@pytest.mark.parametrize("transforms", ["", "transforms:\n", "transforms: {}\n"])
def test_transforms_may_be_absent_or_empty(transforms: str) -> None:
    assert loaded(f"sources: {{}}\n{transforms}sinks: {{}}\n") == PipelineSpec("p.yaml")


def test_a_definition_is_unwrapped() -> None:
    inner = "".join(f"  {line}\n" for line in ORDERS.splitlines())
    assert [each.ref for each in loaded(f"definition:\n{inner}").nodes] == ["shop.orders", "big", "out"]


def test_missing_sections_are_all_named() -> None:
    found = problems("source: {}\n")
    assert [error.code for error in found] == ["MISSING_SECTION", "MISSING_SECTION"]
    assert "'sources'" in found[0].message
    assert found[0].hint == "did you mean 'sources' instead of 'source'?"


def test_a_section_of_the_wrong_type_is_refused() -> None:
    error = problem("sources: [a]\nsinks: {}\n")
    assert error.code == "WRONG_TYPE"
    assert error.where == Where("p.yaml", 1, 10)


def test_invalid_yaml_is_a_problem_of_the_pipeline() -> None:
    error = problem("sources: {}\nsources: {}\n")
    assert error.code == "INVALID_YAML"
    assert "invalid YAML" in error.message


def test_an_unknown_field_is_named_with_the_accepted_ones_and_the_nearest() -> None:
    error = problem("sources:\n  s:\n    type: kafka\n    topic: t\n    paralelism: 2\nsinks: {}\n")
    assert error.code == "UNKNOWN_FIELD"
    assert error.node == "s"
    assert error.where == Where("p.yaml", 5, 5)
    assert error.message.startswith("kafka source 's': unknown field 'paralelism'; accepted: type, ")
    assert "schema," in error.message
    assert error.hint == "did you mean 'parallelism'?"


def test_a_python_name_is_no_field() -> None:
    [error] = problems("sources: {}\nsinks:\n  s: {type: print, from_: x}\n")
    assert (error.code, error.hint) == ("UNKNOWN_FIELD", "did you mean 'from'?")


@pytest.mark.parametrize(
    ("fields", "code", "part"),
    [
        ("", "MISSING_FIELD", "missing field 'topic'"),
        ("topic: 123", "WRONG_TYPE", "'topic' must be text, not the number 123"),
        ("topic: t, batch_size: '100'", "WRONG_TYPE", "'batch_size' must be a whole number, not text ('100')"),
        ("topic: t, batch_size: 1.5", "WRONG_TYPE", "'batch_size' must be a whole number"),
        ("topic: t, batch_size: true", "WRONG_TYPE", "'batch_size' must be a whole number, not true"),
        ("topic: t, include_metadata: 'true'", "WRONG_TYPE", "'include_metadata' must be true or false"),
        ("topic: t, include_metadata: yes", "WRONG_TYPE", "'include_metadata' must be true or false"),
        ("topic: t, schema: [a]", "WRONG_TYPE", "'schema' must be a map, not a list"),
        ("topic: t, schema: {a: 1}", "WRONG_TYPE", "'schema.a' must be text"),
        ("topic: t, primary_key: [a]", "WRONG_TYPE", "not a list"),
        ("topic: t, parallelism: 0", "INVALID_VALUE", "'parallelism' must be at least 1, not 0"),
        ("topic: t, batch_flush_interval: 5", "INVALID_VALUE", "number without a unit"),
        ("topic: t, batch_flush_interval: soon", "INVALID_VALUE", "'batch_flush_interval' is 'soon'"),
        ("topic: t, payload_version: 3", "INVALID_VALUE", "'payload_version' is 3; accepted: 0, 1"),
        (
            "topic: t, starting_offsets: [1]",
            "WRONG_TYPE",
            "'starting_offsets' must be text or a whole number, not a list",
        ),
        (
            "topic: t, schema_id_overrides: [{from: 1, to: 2, x: 3}]",
            "UNKNOWN_FIELD",
            "'schema_id_overrides[0].x'; accepted: from, to",
        ),
        ("topic: t, telemetry: {event_time: {}}", "MISSING_FIELD", "'telemetry.event_time.column'"),
        (
            "topic: t, telemetry: {event_time: {column: c, unit: hours}}",
            "INVALID_VALUE",
            "accepted: seconds, milliseconds, microseconds",
        ),
        ("topic: t, telemetry: {label: {}}", "UNKNOWN_FIELD", "accepted: event_time, labels"),
        ("topic: t, telemetry: {labels: {a: 1}}", "WRONG_TYPE", "'telemetry.labels.a' must be text"),
        ("topic: t, telemetry: {labels: {id: x}}", "INVALID_VALUE", "'id', which is reserved"),
        ("topic: t, telemetry: {labels: {topic: x}}", "INVALID_VALUE", "'topic'"),
        ("topic: t, telemetry: {labels: {__a: x}}", "INVALID_VALUE", "two underscores"),
        ("topic: t, telemetry: {labels: {a-b: x}}", "INVALID_VALUE", "'a-b'"),
        ("topic: t, on_error: ignore", "INVALID_VALUE", "'on_error' is 'ignore'; accepted: fail, skip, dead_letter"),
        ("topic: t, on_error: dead_letter", "MISSING_FIELD", "'dead_letter' is missing"),
        ("topic: t, dead_letter: {type: postgres}", "INVALID_VALUE", "only allowed with"),
        (
            "topic: t, on_error: dead_letter, dead_letter: {type: s3}",
            "INVALID_VALUE",
            "accepted: file, kafka, postgres",
        ),
        ("topic: t, on_error: dead_letter, dead_letter: {path: x}", "MISSING_FIELD", "'dead_letter.type'"),
        ("topic: t, on_error: dead_letter, dead_letter: {type: file}", "MISSING_FIELD", "'dead_letter.path'"),
        (
            "topic: t, on_error: dead_letter, dead_letter: {type: kafka, topic: x, path: y}",
            "UNKNOWN_FIELD",
            "accepted: type, topic",
        ),
    ],
)
def test_a_bad_field_is_named_with_what_is_accepted(fields: str, code: str, part: str) -> None:
    error = problem(node(fields))
    assert error.code == code
    assert part in error.message
    assert error.message.startswith("kafka source 's': ")
    assert error.where is not None
    assert "pydantic" not in error.message.lower()
    assert "Input should" not in error.message


def test_dead_letters_are_typed() -> None:
    spec = loaded(node("topic: t, on_error: dead_letter, dead_letter: {type: file, path: ./x}"))
    assert spec.sources[0].options.on_error is OnError.DEAD_LETTER
    assert spec.sources[0].options.dead_letter == FileLetters(type="file", path="./x")


def test_an_empty_primary_key_names_no_column() -> None:
    options = loaded(node("topic: t, primary_key: ' , '")).sources[0].options
    assert isinstance(options, KafkaSource)
    assert options.primary_key is None


def test_a_required_primary_key_names_a_column() -> None:
    error = problem("sources: {}\nsinks: {}\ntransforms:\n  t: {type: sql, sql: SELECT 1, primary_key: ''}\n")
    assert "must name at least one column" in error.message


def test_values_that_may_be_secret_are_not_quoted() -> None:
    error = problem("sources: {}\nsinks:\n  s: {type: print, from: x, headers: {Authorization: 4711}}\n")
    assert "4711" not in error.message
    assert "'headers.Authorization' must be text" in error.message


def test_a_placeholder_is_told_of_once() -> None:
    [caution] = load_pipeline(node("topic: '${T}'"), "p.yaml", KINDS).cautions
    assert "'topic' contains '${T}'" in caution.message
    wrong = load_pipeline(node("topic: t, batch_size: '${T}'"), "p.yaml", KINDS)
    assert [error.hint for error in wrong.problems] == [caution.hint]
    assert wrong.cautions == ()


def test_an_unknown_type_is_not_available() -> None:
    error = problem("sources:\n  s: {type: Kafka, topic: t}\nsinks: {}\n")
    assert error.code == "KIND_NOT_AVAILABLE"
    assert error.message == "Kafka source 's': source type 'Kafka' is not available; known source types: kafka"
    assert error.hint == "did you mean 'kafka'?"


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("{}", "MISSING_FIELD"),
        ("{type: }", "MISSING_FIELD"),
        ("{type: 5}", "WRONG_TYPE"),
        ("5", "WRONG_TYPE"),
        ("", "WRONG_TYPE"),
    ],
)
def test_a_node_is_a_map_with_a_type(written: str, code: str) -> None:
    error = problem(f"sources:\n  s: {written}\nsinks: {{}}\n")
    assert error.code == code
    assert error.message.startswith("source 's': ")


def test_names_that_differ_in_case_only_clash_across_sections() -> None:
    error = problem("sources:\n  Orders: {type: kafka, topic: t}\nsinks:\n  orders: {type: print, from: orders}\n")
    assert error.code == "NAME_CLASH"
    assert error.message.startswith("print sink 'orders': kafka source 'Orders' in line 2 already has this name")


def test_names_clash_also_between_nodes_with_other_problems() -> None:
    codes = [
        error.code for error in problems("sources:\n  A: {type: kafka}\n  a: {type: kafka, topic: t}\nsinks: {}\n")
    ]
    assert codes == ["MISSING_FIELD", "NAME_CLASH"]


def test_a_kind_with_its_own_namespace_clashes_with_itself_only() -> None:
    text = "sources:\n  a: {type: kafka, topic: t}\ntransforms:\n  A: {type: dynamic_table}\nsinks: {}\n"
    assert len(loaded(text).nodes) == 2
    twice = text.replace("sinks", "  a: {type: dynamic_table}\nsinks")
    assert problem(twice).code == "NAME_CLASH"


def test_a_plugin_takes_any_field() -> None:
    options = loaded("sources: {}\nsinks:\n  s: {type: queue, from: x, Url: u, n: [1]}\n").sinks[0].options
    assert isinstance(options, PluginSink)
    assert options.model_extra == {"Url": "u", "n": [1]}


def test_all_problems_of_a_file_are_found_in_its_order() -> None:
    found = problems("""\
sinks:
  a: {type: print, from: x, nothing: 1}
  b: {type: print}
sources:
  c: {type: kafka, topic: [], batch_size: x}
  d: {type: nowhere}
""")
    assert [(error.node, error.code) for error in found] == [
        ("a", "UNKNOWN_FIELD"),
        ("b", "MISSING_FIELD"),
        ("c", "WRONG_TYPE"),
        ("c", "WRONG_TYPE"),
        ("d", "KIND_NOT_AVAILABLE"),
    ]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_pipeline(tmp_path / "nothere.yaml", KINDS)
    assert caught.value.code == "PIPELINE_FILE"
    assert "nothere.yaml" in caught.value.message
    with pytest.raises(UserError) as caught:
        read_pipeline(tmp_path, KINDS)
    assert caught.value.code == "PIPELINE_FILE"


def test_a_file_is_read_with_its_path_as_name(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(ORDERS)
    assert read_pipeline(path, KINDS).sources[0].where.file == str(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"sources: {}\n\xff\xfe\x00")
    with pytest.raises(UserError) as caught:
        read_pipeline(path, KINDS)
    assert caught.value.code == "INVALID_YAML"
    assert caught.value.where == Where(str(path), 2, 1)


FRAGMENTS = [
    "type",
    ": ",
    "\n",
    "  ",
    "\t",
    "{",
    "}",
    "[",
    "]",
    "- ",
    "&a ",
    "*a",
    "|",
    ">",
    '"',
    "'",
    "\\",
    "!!int ",
    "#",
    "~",
    "0x",
    "1e9",
    ".nan",
    "---\n",
    "? ",
    "<<",
    "%",
    "\x00",
    "\ud800",
    "😀",
    "on_error",
    "dead_letter",
    "kafka",
]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_text_gives_a_pipeline_or_an_error_of_ours(data: st.DataObject) -> None:
    text = ORDERS
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        patch = data.draw(st.sampled_from(FRAGMENTS) | st.text(max_size=4))
        text = text[:start] + patch + text[start + length :]
    for each in problems(text):
        assert each.where is not None
