"""Sinks become blackholes in the text of a pipeline."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.connector import kinds
from streamling.errors import StreamlingError
from streamling.plan.blackholes import replace_sinks
from streamling.spec.yaml import load


def rewritten(text: str) -> dict[str, object]:
    return load(replace_sinks(text, "p.yaml", kinds.kinds()), "p.yaml").plain()


SOURCES = """\
sources:
  Numbers: {type: generator, rows: 3}
"""


def test_every_sink_becomes_a_blackhole_under_its_name() -> None:
    made = rewritten(
        f"""\
# a comment
{SOURCES}
transforms:
  some:
    type: sql
    sql: |
      SELECT id
      FROM numbers
sinks:
  table: {{type: postgres, from: some, table: t, schema: s, primary_key: id}}
  unfinished: {{from: Numbers}}
  hook: {{type: webhook, from: some, url: "https://user:secret@host/"}}
name: orders
"""
    )
    assert made == {
        "sources": {"Numbers": {"type": "generator", "rows": 3}},
        "transforms": {"some": {"type": "sql", "sql": "SELECT id\nFROM numbers\n"}},
        "sinks": {
            "table": {"type": "blackhole", "from": "some"},
            "unfinished": {"type": "blackhole", "from": "Numbers"},
            "hook": {"type": "blackhole", "from": "some"},
        },
        "name": "orders",
    }


@pytest.mark.parametrize("sinks", ["", "sinks:", "sinks: {}"])
def test_without_sinks_each_node_that_nobody_reads_gets_a_blackhole(sinks: str) -> None:
    text = f"""\
{SOURCES}  Other: {{type: generator, rows: 3}}
transforms:
  a: {{type: sql, sql: SELECT id FROM numbers}}
  b: {{type: sql, sql: SELECT id FROM a}}
  c: {{type: script, from: a, language: javascript, script: x}}
  seen: {{type: dynamic_table, backend_type: InMemory, backend_entity_name: seen, sql: SELECT id FROM other}}
  broken: {{type: sql, sql: SELEC}}
{sinks}
"""
    assert rewritten(text)["sinks"] == {
        f"preview_blackhole_{name}": {"type": "blackhole", "from": name} for name in ("b", "c", "broken")
    }


def test_a_definition_around_the_pipeline_stays_around_it() -> None:
    inner = "definition:\n" + "".join(f"  {line}\n" for line in SOURCES.splitlines())
    assert rewritten(f"name: x\n{inner}") == {
        "name": "x",
        "definition": {
            "sources": {"Numbers": {"type": "generator", "rows": 3}},
            "sinks": {"preview_blackhole_Numbers": {"type": "blackhole", "from": "Numbers"}},
        },
    }


def test_a_blackhole_does_not_take_the_name_of_a_node() -> None:
    made = rewritten(SOURCES + "  preview_blackhole_numbers: {type: generator}\n")
    assert list(made["sinks"]) == [  # type: ignore[call-overload]
        "preview_blackhole_Numbers_",
        "preview_blackhole_preview_blackhole_numbers",
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("sources: {", "INVALID_YAML"),
        ("[]", "INVALID_YAML"),
        ("", "INVALID_YAML"),
        ("sinks: {a: {type: print, from: b}}", "MISSING_SECTION"),
        ("sources: []", "WRONG_TYPE"),
        (SOURCES + "sinks: []", "WRONG_TYPE"),
        (SOURCES + "sinks: {a: text}", "WRONG_TYPE"),
        (SOURCES + "sinks: {a: {type: print}}", "MISSING_FIELD"),
    ],
)
def test_what_is_no_pipeline_is_refused(text: str, code: str) -> None:
    with pytest.raises(StreamlingError) as caught:
        replace_sinks(text, "p.yaml", kinds.kinds())
    assert caught.value.code == code


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30)


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=10), SCALARS | st.lists(SCALARS, max_size=3), max_size=4))
def test_all_other_values_stay_as_they_are(values: dict[str, object]) -> None:
    text = f"sources: {{}}\nother: {json.dumps(values)}"
    try:
        written = load(text, "p.yaml").plain()["other"]
    except StreamlingError:
        return  # no pipeline file can have these texts
    assert rewritten(text)["other"] == written
