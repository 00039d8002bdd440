"""Values on their way into a script and out of it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamling.plan.types import OPERATION_COLUMN, STRING, DataType
from support.script_samples import Script, cast, schema_of, table_of

MICROSECOND = timedelta(microseconds=1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


def wall(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC).replace(tzinfo=None)  # type: ignore[arg-type, misc]


def micros(least: int, most: int) -> st.SearchStrategy[timedelta]:
    return st.integers(least, most).map(lambda us: us * MICROSECOND)


def digits(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}e-{scale}"))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "boolean": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1)
    | st.integers(-10, 10)
    | st.sampled_from([2**53, 2**53 - 1, -(2**53), 1 - 2**63]),
    "uint8": st.integers(0, 2**8 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1).map(Decimal),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "decimal(9,2)": digits(9, 2),
    "decimal(15,15)": digits(15, 15),
    "decimal(38,10)": digits(38, 10),
    "date32": st.dates(),
    "timestamp": micros(-62_135_596_800_000_000, 253_402_300_799_999_999).map(lambda d: wall(1970, 1, 1) + d),
    "time64": st.times(),
    "duration": micros(-(2**62), 2**62 // 10**4),
    "binary": st.binary(max_size=9),
    "binary(3)": st.binary(min_size=3, max_size=3),
    "u256": st.integers(0, 2**256 - 1).map(str),
}
# Inside of nested values the microseconds of a time after 2112 do not fit into a double.
NEAR = micros(-4_000_000_000_000_000, 4_000_000_000_000_000).map(lambda d: wall(1970, 1, 1) + d)


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def of_type(name: str) -> st.SearchStrategy[Any]:
    return nullable(VALUES[name])


def inner(name: str) -> st.SearchStrategy[Any]:
    return nullable(NEAR if name == "timestamp" else VALUES[name])


LEAVES = ["string", "int64", "float64", "boolean", "decimal(38,10)", "timestamp", "binary"]
ROW = st.fixed_dictionaries(
    {name: of_type(name) for name in VALUES}
    | {f"list {name}": nullable(st.lists(inner(name), max_size=3)) for name in LEAVES}
    | {
        "lists": nullable(st.lists(nullable(st.lists(of_type("int64"), max_size=3)), max_size=3)),
        "struct": nullable(st.fixed_dictionaries({f"f{n}": inner(name) for n, name in enumerate(LEAVES)})),
        "structs": nullable(st.lists(nullable(st.fixed_dictionaries({"a": of_type("string")})), max_size=3)),
        "map": nullable(st.dictionaries(TEXT, of_type("int64"), max_size=3).map(lambda d: list(d.items()))),
        "map of lists": nullable(
            st.dictionaries(TEXT, nullable(st.lists(of_type("binary"), max_size=2)), max_size=2).map(
                lambda d: list(d.items())
            )
        ),
    }
)


def types() -> dict[str, str | DataType]:
    found: dict[str, str | DataType] = {name: name for name in VALUES}
    found |= {f"list {name}": f"list<{name}>" for name in LEAVES}
    found |= {
        "lists": "list<list<int64>>",
        "struct": "struct<" + ", ".join(f"f{n}: {name}" for n, name in enumerate(LEAVES)) + ">",
        "structs": "list<struct<a: string>>",
        "map": "map<string, int64>",
        "map of lists": "map<string, list<binary>>",
    }
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        if a and isinstance(a[0], tuple):  # a map: JavaScript orders keys that look like numbers
            a, b = sorted(a, key=lambda pair: pair[0]), sorted(b, key=lambda pair: pair[0])
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[0] == b[0] and same(a[1], b[1])
    return bool(a == b)


IDENTITY: dict[str, Script] = {}


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(rows=st.lists(ROW, min_size=20, max_size=20))
def test_every_type_passes_a_script_unchanged(rows: list[dict[str, Any]]) -> None:
    script = IDENTITY.setdefault("identity", Script("row => ({...row})", types()))
    batch = table_of(script.input, rows)
    good, bad, _ = script.outcome_of(iter([batch]))
    assert bad == []
    for before, after in zip(batch.to_pylist(), good, strict=True):
        assert same(before, after), {k: (before[k], after[k]) for k in before if not same(before[k], after[k])}


def test_microseconds_of_times_far_away_stay_unless_the_script_changes_them() -> None:
    moments = [wall(1217, 2, 23, 21, 43, 42, 257748 + n) for n in range(200)]
    moments += [wall(9999, 12, 31, 23, 59, 58, 999800 + n) for n in range(200)]
    columns: dict[str, str | DataType] = {"at": "timestamp"}
    batch = table_of(schema_of(columns), [{"at": moment} for moment in moments])
    good, bad, _ = Script("row => ({...row})", columns).outcome_of(iter([batch]))
    assert bad == []
    assert [row["at"] for row in good] == moments
    later, _, _ = Script("row => ({at: row.at + 1000})", columns).outcome_of(iter([batch.slice(0, 200)]))
    added = [row["at"] - moment for row, moment in zip(later, moments, strict=False)]
    assert all(abs(one - timedelta(seconds=1)) < timedelta(microseconds=8) for one in added)


def test_slices_of_batches_cross_like_batches() -> None:
    columns: dict[str, str | DataType] = {"id": "int64", "tags": "list<string>", "in": "struct<x: decimal(9,2)>"}
    rows = [{"id": n, "tags": [str(n)] * (n % 3) if n % 4 else None, "in": {"x": Decimal(n)}} for n in range(50)]
    batch = table_of(schema_of(columns), rows)
    good, bad, _ = Script("row => row", columns).outcome_of(iter([batch.slice(7, 9), batch.slice(30)]))
    assert bad == []
    assert good == batch.slice(7, 9).to_pylist() + batch.slice(30).to_pylist()


@pytest.mark.parametrize(
    ("type_", "value", "seen"),
    [
        ("int64", 2**53 - 1, "number 9007199254740991"),
        ("int64", 2**53, "bigint 9007199254740992"),
        ("int64", -(2**63), "bigint -9223372036854775808"),
        ("uint64", Decimal(2**64 - 1), "bigint 18446744073709551615"),
        ("decimal(15,2)", Decimal("0.30"), "number 0.3"),
        ("decimal(20,2)", Decimal("5.00"), "string 5.00"),
        ("u256", str(2**255), f"string {2**255}"),
        ("date32", date(1970, 1, 2), "number 86400000"),
        ("timestamp", wall(1970, 1, 1, 0, 0, 1, 1500), "number 1001.5"),
        ("time64", time(0, 0, 1), "number 1000"),
        ("duration", timedelta(milliseconds=-1.5), "number -1.5"),
        ("boolean", False, "boolean false"),
        ("string", None, "object null"),
    ],
)
def test_what_a_script_sees(type_: str, value: Any, seen: str) -> None:
    script = Script("row => ({v: typeof row.v + ' ' + row.v})", {"v": type_}, {"v": "string"})
    assert script.run([{"v": value}])[0]["v"] == seen


def test_nested_values_are_plain_objects_and_arrays() -> None:
    columns: dict[str, str | DataType] = {
        "b": "binary",
        "l": "list<int64>",
        "s": "struct<x: int64, y: string>",
        "m": "map<string, int64>",
        "p": DataType("map", key=DataType("int64"), item=STRING),
    }
    script = Script(
        "row => ({v: [row.b instanceof Uint8Array && row.b.length, row.l.map(x => x + 1).reduce((a, b) => a + b),"
        " row.s, row.m, row.p, Object.keys(row), Array.isArray(row.l)]})",
        columns,
        {"v": "string"},
    )
    row = {"b": b"abc", "l": [1, 2], "s": {"x": 1, "y": None}, "m": [("__proto__", 1), ("k", None)], "p": [(7, "x")]}
    expected = '[3,5,{"x":1,"y":null},{"__proto__":1,"k":null},[[7,"x"]],["b","l","s","m","p","_gs_op"],true]'
    assert script.run([row])[0]["v"] == expected


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ("42", "string", "42"),
        ("1.5", "string", "1.5"),
        ("true", "string", "true"),
        ("{a: [1, 2n]}", "string", '{"a":[1,"2"]}'),
        ("[1, null]", "string", "[1,null]"),
        ("12345678901234567890n", "string", "12345678901234567890"),
        ("undefined", "string", None),
        ("'a\\ud800b'", "string", "a\ufffdb"),
        ("'a\\0b'", "string", "a\0b"),
        ("2.9", "int64", 2),
        ("-2.9", "int64", -2),
        ("'7'", "int64", 7),
        ("'7.9'", "int64", 7),
        ("'9223372036854775807'", "int64", 2**63 - 1),
        ("9223372036854775807n", "int64", 2**63 - 1),
        ("9223372036854775808n", "int64", None),
        ("1e300", "int64", None),
        ("'x'", "int64", None),
        ("true", "int64", 1),
        ("NaN", "int64", None),
        ("Infinity", "int32", None),
        ("128", "int8", None),
        ("-1", "uint8", None),
        ("-1", "uint64", None),
        ("18446744073709551615n", "uint64", Decimal(2**64 - 1)),
        ("'2.5'", "float64", 2.5),
        ("false", "float64", 0.0),
        ("Infinity", "float64", math.inf),
        ("'x'", "float64", None),
        ("{}", "float64", None),
        ("'TRUE'", "boolean", True),
        ("'0'", "boolean", False),
        ("0", "boolean", False),
        ("2", "boolean", True),
        ("'yes'", "boolean", None),
        ("1.25", "decimal(5,2)", Decimal("1.25")),
        ("'1e2'", "decimal(5,2)", Decimal("100.00")),
        ("-7n", "decimal(5,2)", Decimal("-7.00")),
        ("'-0.0'", "decimal(5,2)", Decimal("0.00")),
        ("(2n ** 255n).toString()", "u256", str(2**255)),
        ("0", "date32", date(1970, 1, 1)),
        ("-1", "date32", date(1969, 12, 31)),
        ("'2024-02-29'", "date32", date(2024, 2, 29)),
        ("'2024-02-29T12:00:00.123456Z'", "timestamp", wall(2024, 2, 29, 12, 0, 0, 123456)),
        ("'2024-02-29 12:00:00+02:00'", "timestamp", wall(2024, 2, 29, 10)),
        ("new Date(1500)", "timestamp", wall(1970, 1, 1, 0, 0, 1, 500000)),
        ("1.5", "timestamp", wall(1970, 1, 1, 0, 0, 0, 1500)),
        ("'01:02:03.5'", "time64", time(1, 2, 3, 500000)),
        ("1000", "time64", time(0, 0, 1)),
        ("'-00:00:01.5'", "duration", timedelta(seconds=-1.5)),
        ("'100:00:00'", "duration", timedelta(hours=100)),
        ("new Uint8Array([1, 2])", "binary", b"\x01\x02"),
        ("'0xff00'", "binary", b"\xff\x00"),
        ("[1, '2', null, 3.9]", "list<int64>", [1, 2, None, 3]),
        ("new Float64Array([1, 2])", "list<int64>", [1, 2]),
        ("{a: '1', c: 3}", "struct<a: int64, b: string>", {"a": 1, "b": None}),
        ("{a: '1', b: null}", "map<string, int64>", [("a", 1), ("b", None)]),
        ("new Map([['k', 1]])", "map<string, int64>", [("k", 1)]),
        ("[['k', 1]]", "map<string, int64>", [("k", 1)]),
    ],
)
def test_casts_to_declared_types(value: str, type_: str, expected: object) -> None:
    assert cast(value, type_) == expected


@pytest.mark.parametrize(
    ("value", "type_", "message"),
    [
        ("0.1 + 0.2", "decimal(5,2)", "it has more than 2 digits after the point; round it"),
        ("12345", "decimal(5,2)", "it has more than 3 digits before the point"),
        ("'x'", "decimal(5,2)", "column 'v': the text \"x\" is not a valid decimal(5,2)"),
        ("2n ** 256n", "u256", "u256"),
        ("'yesterday'", "timestamp", 'the text "yesterday" is not a valid timestamp'),
        ("'2024-02-30'", "date32", "is not a valid date32"),
        ("1e300", "timestamp", "is not a valid timestamp"),
        ("-1", "time64", "is not a valid time64"),
        ("'xyz'", "binary", "use a Uint8Array or hex text"),
        ("'0xff'", "binary(3)", "it has 1 bytes"),
        ("5", "list<int64>", "column 'v': the number 5 is not a valid list<int64>: use an array"),
        ("[{a: []}]", "list<struct<a: struct<b: int64>>>", "column 'v[].a': an array is not a valid struct<b: int64>"),
        ("() => 1", "string", "column 'v': the function"),
        ("Symbol()", "string", "column 'v'"),
    ],
)
def test_values_that_make_a_row_bad(value: str, type_: str, message: str) -> None:
    assert message in cast(value, type_)


def test_values_that_become_null_are_counted() -> None:
    script = Script("row => ({v: row.name})", None, {"v": "int64"})
    good, _, counts = script.outcome([{"id": 1, "name": "x"}, {"id": 2, "name": "7"}, {"id": 3, "name": None}])
    assert [row["v"] for row in good] == [None, 7, None]
    assert counts == {"nulls": 1}


def test_columns_named_like_members_of_objects_are_ordinary_columns() -> None:
    columns: dict[str, str | DataType] = dict.fromkeys(("__proto__", "constructor", "toString", "a b"), "string")
    rows = [{name: name for name in columns}, dict.fromkeys(columns)]
    after = Script("row => row", columns).run(rows)
    assert [{k: v for k, v in row.items() if k != OPERATION_COLUMN} for row in after] == rows
    assert Script("row => ({})", columns).run(rows)[0] == {**dict.fromkeys(columns), OPERATION_COLUMN: "i"}


def test_times_with_a_zone_pass_unchanged_where_a_double_has_no_room_for_microseconds() -> None:
    far = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert Script("row => row", {"t": DataType("timestamp", zone="UTC")}).run([{"t": far}])[0]["t"] == far
