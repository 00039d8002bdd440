"""Which function of a script is called, what it may return, and what its errors say."""

from __future__ import annotations

import json

import pytest

from streamling.errors import UserError
from streamling.transforms.script.program import Program, ScriptError, columns_read, read_program
from support.script_samples import NOW_US, Script, epoch, table_of

ROW = {"id": 1, "name": "a"}


@pytest.mark.parametrize(
    "script",
    [
        "function process(row) { return {...row, name: 'x'}; }",
        "function whatever(row) { return {...row, name: 'x'}; };\n// the end\n",
        "function (row) { row.name = 'x'; return row; };",
        "// a comment\n/* another */ function(row) { row.name = 'x'; return row }\n\n",
        "row => ({...row, name: 'x'})",
        "(row) => {\n  row.name = 'x';\n  return row;\n};\n",
        "const NAME = 'x';\nfunction get() { return NAME; }\n"
        "function process(row) { row.name = get(); return row; }\nfunction z() {}",
        "function z(row) { row.name = 'x'; return row; }\nconst invoke = row => z(row);\nfunction y() {}",
        "const first = () => null;\nconst last = row => ({...row, name: 'x'});",
        "class Namer { static name() { return 'x'; } }\nconst f = row => ({...row, name: 'x'});",
    ],
)
@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_forms_of_scripts(script: str, language: str) -> None:
    assert Script(script, language=language).run([ROW]) == [{"id": 1, "name": "x", "_gs_op": "i"}]


def test_typescript() -> None:
    script = """
    interface Order { id: number; name?: string }
    enum Size { Small = 1, Big = 5 }
    type Rows = Array<Partial<Order>>;
    const label = <T extends string>(text: T): string => `<${text}>`;

    function process(row: Order): Rows | null {
      const name = row.name!;
      const size = (name.length > 3 ? Size.Big : Size.Small) as number;
      return [{ id: size, name: label(name) } satisfies Order, ...(name ? [] : [{ id: 0 }])];
    }
    """
    assert Script(script, language="ts").run([ROW]) == [{"id": 1, "name": "<a>", "_gs_op": "i"}]


def test_null_drops_a_row_and_an_array_makes_several() -> None:
    script = Script("row => row.id === 1 ? null : row.id === 2 ? [] : [row, null, {id: -row.id}]")
    rows = [{"id": n, "name": "n", "_gs_op": "u"} for n in (1, 2, 3)]
    assert script.run(rows) == [{"id": 3, "name": "n", "_gs_op": "u"}, {"id": -3, "name": None, "_gs_op": "u"}]


def test_a_script_cannot_change_the_operation() -> None:
    assert Script("row => ({...row, _gs_op: 'i'})").run([{**ROW, "_gs_op": "d"}])[0]["_gs_op"] == "d"


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ("undefined", "undefined"),
        ("5", "the number 5"),
        ("'text'", 'the text "text"'),
        ("true", "the boolean true"),
        ("[1]", "the number 1"),
        ("[undefined]", "undefined"),
        ("[[row]]", "an array"),
        ("Promise.resolve(row)", "a promise; it must be synchronous"),
        ("(async () => row)()", "a promise; it must be synchronous"),
    ],
)
def test_wrong_results(returned: str, what: str) -> None:
    good, (bad,), _ = Script(f"row => {returned}").outcome([ROW])
    assert (good, bad.reason, bad.row) == ([], "script_error", {**ROW, "_gs_op": "i"})
    assert f"the function returned {what}" in bad.message


def test_only_the_failed_row_is_set_aside_and_nothing_of_it_is_kept() -> None:
    script = Script(
        "row => [{id: row.id, tags: ['a', null]}, {id: row.id, tags: row.id === 2 ? 5 : [null]}]",
        {"id": "int64"},
        {"id": "int64", "tags": "list<string>"},
    )
    good, bad, _ = script.outcome([{"id": n} for n in (1, 2, 3)])
    assert [(row["id"], row["tags"]) for row in good] == [
        (1, ["a", None]),
        (1, [None]),
        (3, ["a", None]),
        (3, [None]),
    ]
    assert [row.row for row in bad] == [{"id": 2, "_gs_op": "i"}]


def test_an_exception_names_line_message_row_and_stack() -> None:
    script = Script(
        "const f = row => {\n  return row.name.length;\n};\nfunction process(row) {\n\n  return {id: f(row)};\n}",
        fails=True,
    )
    with pytest.raises(UserError) as caught:
        script.run([ROW, {"id": 2, "name": None}, ROW])
    text = caught.value.message
    assert text.startswith("script execution failed in line 2 of the script: TypeError: ")
    assert "(f (line 2) < process (line 6))" in text
    assert text.endswith('; row 2 of its batch: {"id":2,"name":null,"_gs_op":"i"}')


def test_the_row_in_an_error_is_cut() -> None:
    with pytest.raises(UserError) as caught:
        Script("row => { throw 'x' }", fails=True).run([{"id": 1, "name": "a" * 5000}])
    assert "script execution failed: x; row 1" in caught.value.message
    assert len(caught.value.message) < 1100


def test_lines_of_typescript_are_those_of_the_file() -> None:
    script = "// first\ninterface A {\n  x: number;\n}\n\n"
    script += "function process(row: A) {\n  let y: number;\n\n  throw new Error('z');\n}"
    _, (bad,), _ = Script(script, language="ts").outcome([ROW])
    assert bad.message == "script execution failed in line 9 of the script: Error: z"


@pytest.mark.parametrize("language", ["js", "ts"])
@pytest.mark.parametrize(
    ("script", "line", "column"),
    [
        ("function process(row) {\n  const a = ;\n  return row;\n}", 2, 13),
        ("function process(row) {\n  return {a: 1,, b: 2};\n}", 2, 16),
        ("row => {\n  return row\n", 3, 1),
        ("function process(row) {\n  let s = 'abc;\n}", 2, 11),
        ("function (row) { return row; } }", 1, 32),
        ("import x from 'y';\nfunction process(row) { return x; } }", None, None),
        ("let a = 1;\nlet a = 2;\nrow => row", 2, None),
    ],
)
def test_syntax_errors_have_a_place(script: str, line: int | None, column: int | None, language: str) -> None:
    with pytest.raises(ScriptError) as caught:
        read_program(script, language)
    if line is not None:
        assert (caught.value.line, caught.value.column) in ((line, column), (line, None))


@pytest.mark.parametrize("script", ["const a = 5;", "5", "// nothing"])
def test_a_script_without_a_function_does_not_load(script: str) -> None:
    with pytest.raises(UserError, match="it has no function"):
        Script(script).run([ROW])


def test_a_script_that_fails_outside_of_its_function_does_not_load() -> None:
    with pytest.raises(UserError, match="the script does not load: ReferenceError: nothing is not defined"):
        Script("const a = nothing;\nfunction process(row) { return row }").run([ROW])


def test_time_and_random_numbers_come_from_the_epoch() -> None:
    code = (
        "() => ({a: Date.now(), b: new Date().getTime(), c: performance.now() === performance.now(), r: Math.random()})"
    )
    script = Script(code, {"id": "int64"}, {"a": "int64", "b": "int64", "c": "boolean", "r": "float64"})
    rows = [{"id": n} for n in range(100)]
    first = script.run(rows)
    assert {(row["a"], row["b"], row["c"]) for row in first} == {(NOW_US // 1000, NOW_US // 1000, True)}
    assert script.run(rows) == first
    assert len({row["r"] for row in first}) == 100 and all(0 <= row["r"] < 1 for row in first)
    assert script.run(rows, epoch(2, seed=7)) != first
    assert Script(code, {"id": "int64"}, {"r": "float64"}).run([{"id": 500}])[0]["r"] != first[0]["r"]


def test_globals_live_as_long_as_the_sandbox() -> None:
    script = Script("let n = 0;\nfunction process(row) { return {...row, id: ++n}; }")
    assert [row["id"] for row in script.run([ROW, ROW]) + script.run([ROW])] == [1, 2, 3]
    other = Script("let n = 0;\nfunction process(row) { return {...row, id: ++n}; }")
    assert [row["id"] for row in other.run([ROW])] == [1]


def test_batches_have_the_size_that_the_node_asks_for() -> None:
    code = "let calls = 0, before = null;\nfunction process(row) { return {id: row.id}; }"
    script = Script(code, batch_size=3, fails=True)
    batch = table_of(script.input, [ROW] * 4)
    assert len(script.outcome_of(iter([batch, batch.slice(0, 0), batch]))[0]) == 8
    failing = Script("row => { if (row.id === 5) throw 'x'; return row }", batch_size=3, fails=True)
    with pytest.raises(UserError, match="row 2 of its batch"):
        failing.run([{"id": n} for n in range(1, 9)])


def test_what_is_logged_is_cut_counted_and_limited() -> None:
    script = Script("row => { console.log('x'.repeat(3000)); console.warn({a: 1n, id: row.id}); return row }")
    _, _, counts = script.outcome([{"id": n} for n in range(30)])
    lines = {tuple(json.loads(what[5:])): count for what, count in counts.items() if what.startswith("line ")}
    assert lines[0, "x" * 1000 + "..."] == 10
    assert lines[1, '{"a":"1","id":0}'] == 1
    assert sum(lines.values()) == 20 and counts["lost"] == 40


def test_keys_that_are_not_columns_are_reported() -> None:
    _, _, counts = Script("row => ({...row, tier: 1})").outcome([ROW])
    assert counts == {"key tier": 1}
    assert Script("row => ({...row, tier: 1})", None, {"id": "int64"}).outcome([ROW])[2] == {}


@pytest.mark.parametrize(
    ("function", "read"),
    [
        ("row => ({v: row.a + row?.b})", {"a", "b"}),
        ("function f(row) { return {v: `${row.a}`}; }", {"a"}),
        ("({a, b}) => ({v: a + b})", {"a", "b"}),
        ("row => ({...row})", {"a", "b", "c"}),
        ("row => row", {"a", "b", "c"}),
        ("row => ({v: row['a']})", {"a", "b", "c"}),
        ("row => ({v: eval('r' + 'ow').c})", {"a", "b", "c"}),
        ("function f(row) { return {v: arguments[0].c, w: row.a}; }", {"a", "b", "c"}),
        ("({a, ...rest}) => rest", {"a", "b", "c"}),
        ("row => helper(row)", {"a", "b", "c"}),
        ("row => ({v: r\\u006fw.c, w: row.a})", {"a", "b", "c"}),
        ("(row, other) => ({v: row.a})", {"a", "b", "c"}),
    ],
)
def test_only_columns_that_are_read_cross(function: str, read: set[str]) -> None:
    assert columns_read(Program(function, function, False), function, ["a", "b", "c"]) == read
