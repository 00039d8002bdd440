"""What the YAML of plugin nodes may say, and what of it reaches the plugin."""

from __future__ import annotations

import textwrap

import pytest

from streamling.errors import StreamlingError
from streamling.plan.contract import ChecksColumns
from streamling.plan.types import Schema
from streamling.spec.pipeline import Kinds, NodeSpec, PipelineSpec, Role, load_pipeline
from streamling.spec.pipeline.plugin_options import (
    PluginOptions,
    PluginSinkOptions,
    PluginSourceOptions,
    PluginTransformOptions,
)

KINDS: Kinds = {
    (Role.SOURCE, "p"): PluginSourceOptions,
    (Role.TRANSFORM, "p"): PluginTransformOptions,
    (Role.SINK, "p"): PluginSinkOptions,
}


def loaded(role: str, fields: str) -> PipelineSpec:
    sections = {name: f"{name}: {{}}\n" for name in ("sources", "transforms", "sinks")}
    sections[f"{role}s"] = f"{role}s:\n  n:\n    type: p\n{textwrap.indent(textwrap.dedent(fields), '    ')}\n"
    return load_pipeline("".join(sections.values()), "p.yaml", KINDS)


def node(role: str, fields: str) -> NodeSpec:
    pipeline = loaded(role, fields)
    assert pipeline.problems == ()
    return pipeline.nodes[0]


def given(role: str, fields: str) -> dict[str, str]:
    options = node(role, fields).options
    assert isinstance(options, PluginOptions)
    return options.plugin_options()


def problem(role: str, fields: str) -> StreamlingError:
    (only,) = loaded(role, fields).problems
    return only


def cautions(role: str, fields: str) -> list[str]:
    spec = node(role, fields)
    assert isinstance(spec.options, ChecksColumns)
    return [finding.message for finding in spec.options.check_columns(spec, Schema(()), ())]


def test_options_stand_on_the_node_or_under_options_and_the_node_wins() -> None:
    assert given("source", "url: here\noptions: {url: there, depth: 2}\n") == {"url": "here", "depth": "2"}


def test_scalars_become_text_and_the_rest_json() -> None:
    fields = """\
    text: "5"
    number: 5
    fraction: 1.5
    switch: true
    off: False
    list: [1, a, null]
    map: {k: {é: true}}
    options: {nested: [], word: yes}
    """
    assert given("source", fields) == {
        "text": "5",
        "number": "5",
        "fraction": "1.5",
        "switch": "true",
        "off": "false",
        "list": '[1,"a",null]',
        "map": '{"k":{"é":true}}',
        "nested": "[]",
        "word": "yes",
    }


def test_an_empty_value_is_none() -> None:
    assert given("source", "a:\nb:\noptions: {b: 1, c: }\n") == {"b": "1"}
    assert given("source", "options:\n") == {}


def test_the_runtime_keeps_its_own_fields() -> None:
    fields = """\
    primary_key: id
    parallelism: 2
    telemetry: {labels: {a: b}}
    on_error: dead_letter
    dead_letter: {type: file, path: x}
    mine: 1
    """
    assert given("source", fields) == {"mine": "1"}
    batched = "from: s\nbatch_size: 5\nbatch_flush_interval: 1s\n"
    assert given("transform", batched + fields.replace("    ", "")) == {"mine": "1"}


def test_a_source_may_have_options_of_its_own_that_other_nodes_do_not() -> None:
    assert given("source", "batch_size: many\nfrom: 3\nbatch_flush_interval: 2") == {
        "batch_size": "many",
        "from": "3",
        "batch_flush_interval": "2",
    }


def test_the_key_of_a_sink_is_an_option_too_when_it_stands_on_the_node() -> None:
    assert given("sink", "from: s\nprimary_key: a, b\n") == {"primary_key": "a,b"}
    assert given("sink", "from: s\noptions: {primary_key: c}\n") == {}
    assert given("sink", "from: s\nprimary_key: a\noptions: {primary_key: c}\n") == {"primary_key": "a"}
    assert given("transform", "from: s\nprimary_key: a\n") == {}


@pytest.mark.parametrize("name", ["type", "primary_key", "telemetry", "parallelism"])
def test_a_field_of_the_runtime_inside_options_is_cautioned_against(name: str) -> None:
    assert given("source", f"options: {{{name}: 1, mine: 2}}") == {"mine": "2"}
    (found,) = cautions("source", f"options: {{{name}: 1, mine: 2}}")
    assert f"'options.{name}'" in found


@pytest.mark.parametrize("name", ["from", "batch_size", "batch_flush_interval"])
def test_nodes_with_an_input_have_more_fields_of_the_runtime(name: str) -> None:
    for role in ("transform", "sink"):
        assert given(role, f"from: s\noptions: {{{name}: 1}}") == {}
        assert len(cautions(role, f"from: s\noptions: {{{name}: 1}}")) == 1
    assert given("source", f"options: {{{name}: 1}}") == {name: "1"}
    assert cautions("source", f"options: {{{name}: 1}}") == []


@pytest.mark.parametrize("name", ["on_error", "dead_letter"])
def test_bad_rows_are_the_runtimes_on_the_node_and_the_plugins_inside_options(name: str) -> None:
    assert given("source", f"options: {{{name}: x}}") == {name: "x"}
    assert cautions("source", f"options: {{{name}: x}}") == []
    assert problem("source", f"{name}: x").code in ("INVALID_VALUE", "WRONG_TYPE")


@pytest.mark.parametrize(
    ("role", "fields", "code"),
    [
        ("source", "parallelism: '2'", "WRONG_TYPE"),
        ("source", "primary_key: [a]", "WRONG_TYPE"),
        ("source", "options: [a]", "WRONG_TYPE"),
        ("transform", "batch_size: 5", "MISSING_FIELD"),
        ("sink", "from: s\nbatch_size: many", "WRONG_TYPE"),
        ("sink", "from: s\ntelemetry: {labels: {type: x}}", "INVALID_VALUE"),
    ],
)
def test_the_fields_of_the_runtime_are_strict(role: str, fields: str, code: str) -> None:
    assert problem(role, fields).code == code


def test_option_names_keep_their_case() -> None:
    assert given("source", "Max_Rows: 5\nmax_rows: 6") == {"Max_Rows": "5", "max_rows": "6"}
