"""JSON of all rows at once has the same bytes as JSON row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.formats.arrow import arrow_schema
from streamling.formats.json import json_rows
from streamling.formats.json_encoding import encode_json, plain_texts
from streamling.plan.types import BINARY, FLOAT64, INT64, STRING, DataType, Field, Schema
from support.typed_values import CASES

NASTY = st.text(st.sampled_from('a"\\\n\r\t\x00\x1f\x7fé🚀/'), max_size=9)


@pytest.mark.parametrize(
    ("type_", "values"),
    [*((type_, values) for type_, values, _ in CASES), (STRING, NASTY)],
    ids=lambda case: str(case) if isinstance(case, DataType) else "",
)
def test_rows_have_the_same_json(type_: DataType, values: st.SearchStrategy[Any]) -> None:
    columns = Schema((Field('na"me %s', type_), Field("n", INT64), Field("may", type_)))

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(values, st.integers(0, 9), st.none() | values), min_size=1, max_size=9))
    def check(rows: list[tuple[Any, ...]]) -> None:
        schema = arrow_schema(columns)
        arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        assert encode_json(batch, columns).to_pylist() == json_rows(batch, columns)
        rest = batch.slice(1)
        assert encode_json(rest, columns).to_pylist() == json_rows(rest, columns)

    check()


def test_values_as_plain_text() -> None:
    assert plain_texts(pa.array(["a:b", None, '"q"']), STRING).to_pylist() == ["a:b", None, '"q"']
    assert plain_texts(pa.array([b"\x00\xff", None]), BINARY).to_pylist() == ["00ff", None]
    assert plain_texts(pa.array([1, None]), INT64).to_pylist() == ["1", None]
    assert plain_texts(pa.array([[1, None]]), None).to_pylist() == ["[1,null]"]
    assert plain_texts(pa.array([0], pa.timestamp("us")), None).to_pylist() == ["1970-01-01T00:00:00"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.floats(-1e16, 1e16) | st.floats(-1, 1) | st.integers(-(10**15), 10**15).map(float) | st.just(-0.0),
        min_size=1,
    )
)
def test_usual_floats_have_the_same_digits(values: list[float]) -> None:
    columns = Schema((Field("f", FLOAT64),))
    for value in values:
        batch = pa.RecordBatch.from_arrays([pa.array([value, 0.5])], schema=arrow_schema(columns))
        assert encode_json(batch, columns).to_pylist() == json_rows(batch, columns)
