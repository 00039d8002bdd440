"""Types inferred from CSV and JSON never change a value: neither in the sample nor in any row after it."""

from __future__ import annotations

import json
import tempfile
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.engine.preparation import check
from streamling.errors import InvalidPipeline
from streamling.plan.types import DataType
from streamling.sources.file.columns import columns_of
from streamling.sources.file.guesses import Change
from streamling.spec.pipeline.text import PipelineText
from streamling.spec.settings import Settings
from support.file_source_samples import bad_in, everything, file_source, opened, rows_in

BIG = "12345678901234567890"
LONG = "0.1000000000000000055511151231257827"


def write(directory: Path, format_: str, *values: str, name: str = "a") -> Path:
    """A file with a column `x` of these values, written as they are, and a column `k`."""
    if format_ == "csv":
        text = "x,k\n" + "".join(f"{value},k\n" for value in values)
    else:
        text = "".join(f'{{"x": {value}, "k": "k"}}\n' for value in values)
    (directory / f"{name}.{format_}").write_text(text)
    return directory


def inferred(directory: Path, format_: str) -> tuple[DataType, list[Change]]:
    changes: list[Change] = []
    return columns_of(str(directory), format_, {}, changes.append).fields[0].type, changes


@pytest.mark.parametrize(
    ("values", "type_", "changed"),
    [
        (["1", "-5", "0"], "int64", False),
        (["01234", "5"], "string", True),
        (["-007"], "string", True),
        (["0x1F"], "string", True),
        (["-0", "5"], "string", True),
        (["007", "1e5"], "string", True),
        (["+4912345"], "string", True),
        ([" 5", "6 "], "int64", False),
        ([BIG, "5"], "decimal(38,0)", True),
        (["9" * 39], "string", True),
        (["-" + "9" * 38], "decimal(38,0)", True),
        (["0.5", "-0", "1e5", ".5"], "float64", False),
        (["1.5", "nan", "-inf"], "float64", False),
        (["nan"], "string", True),
        ([LONG, "2.5"], "decimal(38,34)", True),
        ([LONG, "12345.5"], "string", True),
        (["9007199254740993", "1.5"], "decimal(38,1)", True),
        (["1e400"], "string", True),
        (["1e-400", "1.5"], "string", True),
        (["true", "FALSE"], "boolean", False),
        (["true", "1"], "string", True),
        (["2026-01-05"], "date32", False),
        (["2026-1-5"], "string", False),
        (["2026-01-05 12:00:00.123456"], "timestamp(ns)", False),
        (["2026-01-05 12:00:00.1234567"], "string", True),
        (["2026-01-05T12:00:00+02:00"], "timestamp(s, UTC)", False),
    ],
)
def test_a_csv_column_has_a_type_that_keeps_its_values(
    tmp_path: Path, values: list[str], type_: str, changed: bool
) -> None:
    write(tmp_path, "csv", *values)
    found, changes = inferred(tmp_path, "csv")
    assert (str(found), bool(changes)) == (type_, changed)
    items = everything(opened(tmp_path, "csv"))
    assert (bad_in(items), len(rows_in(items))) == ([], len(values))


@pytest.mark.parametrize(
    ("values", "type_", "changed"),
    [
        (["1", "1.5", "-0"], "float64", False),
        ([BIG, "1"], "decimal(38,0)", True),
        ([BIG, "1.25"], "decimal(38,2)", True),
        ([LONG], "decimal(38,34)", True),
        (["9" * 40], "float64", True),
        (["0.30000000000000004", "1e20"], "float64", False),
        (['{"y": [1.5, 12345678901234567890.5]}'], "struct<y: list<decimal(38,1)>>", True),
        (['"2026-01-05"', "null"], "date32", False),
        (['"2026-01-05T12:00:00"'], "timestamp(s)", False),
        (['"2026-01-05T12:00:00Z"', '"2026-01-05 12:00:00+02:00"'], "timestamp(s, UTC)", False),
        (['"2026-01-05T12:00:00Z"', '"2026-01-05T12:00:00"'], "string", True),
        (['[{"at": "2026-01-05T12:00:00Z"}]'], "list<struct<at: timestamp(s, UTC)>>", False),
    ],
)
def test_a_json_column_has_a_type_that_keeps_its_values(
    tmp_path: Path, values: list[str], type_: str, changed: bool
) -> None:
    write(tmp_path, "json", *values)
    found, changes = inferred(tmp_path, "json")
    assert (str(found), bool(changes)) == (type_, changed)


NUMBERS = (
    st.integers(-(10**20), 10**20).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.decimals(-(10**6), 10**6, places=20).map("{:f}".format)
    | st.sampled_from(["007", "-0", "0", "+5", "0.50", "1e3", "true", "0x1F", "1e-400", "9007199254740993", "5."])
)


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=4), st.lists(NUMBERS, max_size=4))
def test_whatever_numbers_a_csv_file_has_they_are_kept_or_rejected(first: list[str], later: list[str]) -> None:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        write(directory, "csv", *first)
        source = file_source(directory, "csv")
        write(directory, "csv", *later, name="b")
        source.open({})
        items = everything(source)
    values = [row["x"] for row in rows_in(items)]
    rejected = [bad.raw.removesuffix(b",k").decode() for bad in bad_in(items) if bad.raw]
    read = [text for text in first + later if text not in rejected]
    assert not set(first) & set(rejected) - set(later)
    assert len(values) == len(read)
    for value, text in zip(values, read, strict=True):
        if isinstance(value, float):  # a later number may differ in the last digits that a double has
            assert abs(Decimal(repr(value)) - Decimal(text)) <= abs(Decimal(text)) * Decimal("1e-15")
        elif not isinstance(value, str | bool):
            assert Decimal(value) == Decimal(text)
            assert text[:1] != "+"
        else:
            assert value == (text if isinstance(value, str) else text == "true")


LATER = [
    ("csv", "5", "01234", "column 'x': '01234' would change as int64"),
    ("csv", "5", "-01", "column 'x': '-01' would change as int64"),
    ("csv", "5", BIG, "is not a valid int64"),
    ("csv", "1.5", "007", "column 'x': '007' would change as float64"),
    ("csv", "1.5", "+4912345", "'+4912345' would change as float64"),
    ("csv", "1.5", BIG, "would change as float64"),
    ("csv", "1.5", LONG, "would change as float64"),
    ("csv", "1.5", "4503599627370497.25", "would change as float64"),
    ("csv", "1.5", "1e400", "would change as float64"),
    ("csv", "1.5", "1e-400", "would change as float64"),
    ("csv", BIG, "007", "would change as decimal(38,0)"),
    ("csv", BIG, "9" * 39, "is not a valid decimal(38,0)"),
    ("csv", "true", "1", "would change as boolean"),
    ("csv", "2026-01-05 12:00:00", "2026-01-05 12:00:00Z", "is not a valid timestamp"),
    ("csv", "2026-01-05 12:00:00", "2026-01-05 12:00:00.1234567", "is not a valid timestamp"),
    ("json", "1.5", BIG, f"column 'x': {BIG} would change as float64"),
    ("json", "1.5", "9007199254740993", "would change as float64"),
    ("json", "1.5", LONG, "would change as float64"),
    ("json", "1.5", "4503599627370497.25", "would change as float64"),
    ("json", "1.5", "1.23456789e-320", "would change as float64"),
    ("json", "[[1.5]]", f"[[2, {BIG}]]", "would change as list<list<float64>>"),
    ("json", BIG, "1.5", "is not a valid decimal(38,0)"),
    ("json", f"{BIG}.5", "1e-50", "is not a valid decimal(38,1)"),
    ("json", '"2026-01-05T12:00:00"', '"2026-01-05T12:00:00Z"', "is not a valid timestamp"),
    ("json", '"2026-01-05T12:00:00Z"', '"2026-01-05T12:00:00"', "is not a valid timestamp"),
    ("json", '"2026-01-05"', '"2026-01-05T12:00:00"', "is not a valid date32"),
]


@pytest.mark.parametrize(("format_", "first", "later", "part"), LATER)
def test_a_later_value_that_would_change_is_a_bad_row(
    tmp_path: Path, format_: str, first: str, later: str, part: str
) -> None:
    write(tmp_path, format_, *[first] * 3)
    source = file_source(tmp_path, format_)
    write(tmp_path, format_, first, first, later, first, name="b")
    source.open({})
    items = everything(source)
    (bad,) = bad_in(items)
    assert (bad.reason, bad.source) == ("schema_mismatch", {"file": str(tmp_path / f"b.{format_}"), "row": 3})
    assert part in bad.message
    assert "not a valid" in part or "set the type of the column in 'schema'" in bad.message
    assert len(rows_in(items)) == 6


def test_numbers_that_doubles_are_written_with_are_read(tmp_path: Path) -> None:
    doubles = [0.1 + 0.2, 1e-7 / 3, 123.45678901234567, 1e300 / 7, 2.0**53 - 1, 0.008218164365246028, -1 / 3, 5e-324]
    for format_ in ("csv", "json"):
        write(tmp_path, format_, "1.5")
        source = file_source(tmp_path, format_)
        write(tmp_path, format_, *map(repr, doubles), name="b")
        source.open({})
        assert [row["x"] for row in rows_in(everything(source))] == [1.5, *doubles]


def test_texts_of_other_columns_are_left_alone(tmp_path: Path) -> None:
    line = {"x": 1.5, "k": f"007 {LONG} \\ {BIG}", "at": "-01", "deep": {"t": "0123.12345678901234567890"}}
    (tmp_path / "a.json").write_text(json.dumps(line) + "\n")
    (tmp_path / "a.csv").write_text(f'x,k,at\n1.5,"007, {LONG}",2026-01-05T08:00:00+02:00\n')
    for format_ in ("csv", "json"):
        (row,) = rows_in(everything(opened(tmp_path, format_)))
        assert (row["x"], row["k"][:3]) == (1.5, "007")


# What users see


def checked(directory: Path, more: str = "") -> tuple[str, ...]:
    """The codes and messages of a check that looks up the columns."""
    fields = f"type: file, path: '{directory}', format: csv{more}"
    text = f"sources: {{s: {{{fields}}}}}\nsinks: {{out: {{type: blackhole, from: s}}}}"
    try:
        found = check(PipelineText(text, "p.yaml"), Settings(), probe=True).cautions
    except InvalidPipeline as error:
        found = tuple(error.problems)  # type: ignore[assignment]
    return tuple(f"{one.code} {one.message}; {one.hint}" for one in found)


def test_a_corrected_type_is_a_caution_that_names_column_and_schema(tmp_path: Path) -> None:
    write(tmp_path, "csv", "01234")
    assert checked(tmp_path, ", primary_key: k") == (
        "TYPE_INFERRED file source 's': column 'x' is string: as int64, '01234' would be another value; "
        "set the type of the column in 'schema' of the source",
    )
    assert checked(tmp_path, ", primary_key: k, schema: {x: int64}") == ()


def test_an_inferred_float_is_no_key(tmp_path: Path) -> None:
    write(tmp_path, "csv", "1.5")
    (problem,) = checked(tmp_path, ", primary_key: x")
    assert problem.startswith("PRIMARY_KEY file source 's': the key column 'x' is float64")
    assert "'schema' of the source" in problem
    assert checked(tmp_path, ", primary_key: x, schema: {x: float64}") == ()


# Fields that the sample does not have


def test_a_field_behind_the_sample_is_named_once_per_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    line = json.dumps({"id": 1, "deep": {"a": 1}, "text": "x" * 200}) + "\n"
    late = json.dumps({"id": 2, "discount": 5, "deep": {"a": 1, "b": [1]}}) + "\n"
    (tmp_path / "a.json").write_text(line * 6000 + late + line * 10 + late)
    items = everything(opened(tmp_path, "json"))
    assert (len(rows_in(items)), bad_in(items)) == (6012, [])
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "a.json' has fields that were not in the first megabyte" in warning
    assert "add them to 'schema' of the source: discount, deep.b" in warning


def test_bad_lines_beside_unknown_fields_are_bad_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path, "json", "1")
    source = file_source(tmp_path, "json")
    (tmp_path / "b.json").write_text('{"x": 1, "new": 1}\n{"x": "two"}\n{"x": 3, "new": 1}\n')
    source.open({})
    items = everything(source)
    assert [bad.source["row"] for bad in bad_in(items)] == [2]
    assert [row["x"] for row in rows_in(items)] == [1, 1, 3]
