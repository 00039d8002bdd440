"""What the planner learns from plugins, and what it says when they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamling.errors import UserError
from support.plugin_files import NUMBERS, checked, problems, write_plugin

SOURCE = "sources:\n  n: {type: numbers, primary_key: id}\n"
SINK = "sinks:\n  o: {type: blackhole, from: n}\n"

OWN = (
    NUMBERS
    + """
class Log:
    calls = []

@register_sink("queue")
class Queue(SinkPlugin):
    def __init__(self, context, options):
        super().__init__(context, options)
        self.url = options["queue_url"]
        if self.url == "bad":
            raise PluginError("queue_url must not be 'bad'", user=True)
        if self.url == "state":
            context.state.get()
        if self.url == "odd":
            raise RuntimeError("odd")
    async def initialize(self):
        raise AssertionError("not in validation")
    def process_batch(self, batch): ...
    async def terminate(self):
        Log.calls.append(f"terminate {self.context.reference_name} {self.context.application_id}")

@register_transform("add")
class Add(TransformPlugin):
    def output_schema(self):
        schema = self.context.input_schema
        return pa.schema([*schema, pa.field("extra", pa.uint64(), False)])
    def process_batch(self, batch): ...

class Schemaless(TransformPlugin):
    def process_batch(self, batch): ...
@register_transform("no_operation")
class NoOperation(Schemaless):
    def output_schema(self):
        return pa.schema([("id", pa.int64())])
@register_transform("no_schema")
class NoSchema(Schemaless):
    def output_schema(self):
        return ["id"]
@register_transform("number_operation")
class NumberOperation(Schemaless):
    def output_schema(self):
        return pa.schema([("_gs_op", pa.int64())])
@register_transform("odd_type")
class OddType(Schemaless):
    async def output_schema(self):
        return pa.schema([("_gs_op", pa.string()), ("x", pa.month_day_nano_interval())])

@register_transform("no_answer")
class NoAnswer(Schemaless):
    def output_schema(self):
        raise ValueError("no answer")
    def terminate(self):
        raise ValueError("no end")
@register_transform("no_end")
class NoEnd(Add):
    async def terminate(self):
        raise ValueError("no end")

@register_sink("parts", partitioned=True)
class Parts(SinkPlugin):
    @classmethod
    def describe(cls, options, input_schema):
        if "fail" in options:
            raise ValueError("fail is set")
        if "by" in options:
            return Description(placement=ByColumns(options["by"]))
        return Description(placement=ByPrimaryKey(), minimum=2, maximum=4)
    def process_batch(self, batch): ...
"""
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_plugin(tmp_path, OWN)
    return tmp_path


def test_a_plugin_is_made_and_ended_to_be_checked_and_never_initialized(place: Path) -> None:
    checked(place, SOURCE + "sinks:\n  Mine: {type: queue, from: n, queue_url: here}\n")
    import sys

    assert sys.modules["streamling_plugin_own"].__dict__["Log"].calls == ["terminate mine local_app_v1"]


def test_columns_of_sources_and_transforms_are_those_of_the_plugin(place: Path) -> None:
    plan = checked(place, SOURCE + "transforms:\n  t: {type: add, from: n}\n" + SINK.replace("from: n", "from: t"))
    assert [(f.name, str(f.type), f.nullable) for f in plan.node("t").schema] == [
        ("id", "int64", False),
        ("extra", "uint64", False),
        ("_gs_op", "string", False),
    ]


def test_sql_over_the_columns_of_a_plugin_is_checked(place: Path) -> None:
    sql = 'transforms:\n  t: {type: sql, primary_key: id, sql: "SELECT id, nothing FROM n"}\n'
    (problem,) = problems(place, SOURCE + sql + SINK.replace("from: n", "from: t"))
    assert problem.code == "SQL_UNKNOWN_COLUMN"


@pytest.mark.parametrize(
    ("node", "said", "place_of"),
    [
        ("{type: queue, from: n}", "the option 'queue_url' is missing", (4, 3)),
        ("{type: queue, from: n, queue_url: bad}", "queue_url must not be 'bad'", (4, 40)),
        ("{type: queue, from: n, options: {queue_url: bad}}", "queue_url must not be 'bad'", (4, 50)),
        ("{type: queue, from: n, queue_url: odd}", "RuntimeError: odd (own.py, line", (4, 3)),
        ("{type: parts, from: n, fail: 1, parallelism: 2}", "ValueError: fail is set (own.py, line", (4, 35)),
    ],
)
def test_a_constructor_that_raises_is_a_configuration_error_with_its_place(
    place: Path, node: str, said: str, place_of: tuple[int, int]
) -> None:
    (problem,) = problems(place, SOURCE + f"sinks:\n  o: {node}\n")
    assert isinstance(problem, UserError)
    assert problem.code == "PLUGIN_REFUSED"
    assert said in problem.message
    assert problem.where is not None and (problem.where.line, problem.where.column) == place_of


def test_state_cannot_be_used_in_the_constructor(place: Path) -> None:
    (problem,) = problems(place, SOURCE + "sinks:\n  o: {type: queue, from: n, queue_url: state}\n")
    assert "state can be used from initialize() on" in problem.message


@pytest.mark.parametrize(
    ("type_", "said"),
    [
        ("no_operation", "output_schema has no column '_gs_op'; it has: id"),
        ("no_schema", "output_schema returned list, not a pyarrow.Schema"),
        ("number_operation", "'_gs_op' must be text"),
        ("odd_type", "column 'x' has the type month_day_nano_interval"),
    ],
)
def test_an_output_schema_that_cannot_be_used_is_an_error_of_the_node(place: Path, type_: str, said: str) -> None:
    text = SOURCE + f"transforms:\n  t: {{type: {type_}, from: n}}\n" + SINK.replace("from: n", "from: t")
    (problem,) = problems(place, text)
    assert problem.code == "SCHEMA_UNUSABLE"
    assert said in problem.message


@pytest.mark.parametrize(
    ("type_", "said"),
    [("no_answer", "output_schema failed: ValueError: no answer"), ("no_end", "terminate failed: ValueError: no end")],
)
def test_a_method_that_raises_while_checking_is_named(place: Path, type_: str, said: str) -> None:
    text = SOURCE + f"transforms:\n  t: {{type: {type_}, from: n}}\nsinks:\n  o: {{type: blackhole, from: t}}\n"
    (found,) = problems(place, text)
    assert f"{type_} transform 't': {said}" in found.message


def test_a_plugin_that_is_not_partitioned_runs_as_one_stream(place: Path) -> None:
    (problem,) = problems(place, SOURCE.replace("numbers,", "numbers, parallelism: 2,") + SINK)
    assert problem.code == "PLACEMENT"
    assert "'parallelism' is 2, but the plugin is not partitioned" in problem.message


def test_the_width_of_a_partitioned_plugin_stays_within_what_it_allows(place: Path) -> None:
    plan = checked(place, SOURCE + "sinks:\n  o: {type: parts, from: n, parallelism: 4}\n")
    assert plan.node("o").width == 4
    for node, said in (
        ("parallelism: 5", "would run on 5 streams; the plugin allows 2 to 4"),
        ("x: 1", "would run on 1 streams; the plugin allows 2 to 4"),
    ):
        (problem,) = problems(place, SOURCE + f"sinks:\n  o: {{type: parts, from: n, {node}}}\n")
        assert problem.code == "PLACEMENT"
        assert said in problem.message


def test_a_partitioned_plugin_takes_the_width_of_its_input(place: Path) -> None:
    source = "sources:\n  n: {type: basic_plugin.partitioned_source, rows: 1, parallelism: 3, primary_key: id}\n"
    sql = "transforms:\n  t: {type: sql, primary_key: id, sql: SELECT id FROM n}\n"
    plan = checked(place, source + sql + "sinks:\n  o: {type: parts, from: t}\n")
    assert plan.node("o").width == 3


def test_placing_by_key_needs_a_key_and_placing_by_columns_needs_the_columns(place: Path) -> None:
    keyless = SOURCE.replace(", primary_key: id", "")
    (problem,) = problems(place, keyless + "sinks:\n  o: {type: parts, from: n, parallelism: 2}\n")
    assert problem.code == "KEY_REQUIRED"
    (problem,) = problems(place, SOURCE + "sinks:\n  o: {type: parts, from: n, by: lost, parallelism: 2}\n")
    assert "by the column 'lost', which the input does not have" in problem.message


def test_settings_of_the_plugin_beat_the_pipeline_file(place: Path) -> None:
    text = SOURCE + "sinks:\n  o: {type: queue, from: n, queue_url: fine}\n"
    (problem,) = problems(place, text, own={"queue": {"queue_url": "bad"}})
    assert "queue_url must not be 'bad'" in problem.message
    checked(place, text.replace(", queue_url: fine", ""), own={"queue": {"queue_url": "fine"}})
