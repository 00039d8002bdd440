"""Hostile scripts: each is stopped by its limit, and what comes after it is not affected."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from streamling.errors import UserError
from streamling.transforms.script import machine, modules, sandbox
from support.script_samples import Script

ROWS = [{"id": n, "name": "a"} for n in range(1, 6)]
CALM = "{ if (row.id === 3) %s; return row }"


def stopped(body: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of a script that does something in row 3 only."""
    monkeypatch.setattr(sandbox, "CALL_SECONDS", 1.0)
    script = Script("const kept = [];\nfunction process(row) " + CALM % body)
    begin = time.monotonic()
    with pytest.raises(UserError) as caught:
        script.outcome(ROWS)
    assert time.monotonic() - begin < 30
    assert caught.value.code == "SCRIPT_LIMIT" and caught.value.message.startswith("script execution failed: ")
    assert '; row 3 of its batch: {"id":3,' in caught.value.message
    # The sandbox is a new one, with the script in it.
    assert script.run(ROWS[:2]) == [{**row, "_gs_op": "i"} for row in ROWS[:2]]
    return caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        "while (true) {}",
        "while (true) { try { while (true) {} } catch (e) {} finally { continue } }",
        "for (;;) { kept.length = 0; kept.push(1) }",
        "/(a+)+b/.test('a'.repeat(50))",
        "Array.prototype.indexOf.call({length: 2 ** 53 - 1}, 1)",
        "[1, 2].sort(() => { while (true) {} })",
        "return {id: 1, get name() { while (true) {} }}",
        "return {id: 1, name: {toJSON() { while (true) {} }}}",
    ],
)
def test_loops_without_end_are_stopped_by_the_time_limit(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the call took longer than 60 s" in stopped(body, monkeypatch)


def test_what_a_promise_does_later_has_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "CALL_SECONDS", 1.0)
    script = Script("row => { import('x').catch(() => { while (true) {} }); return row }")
    with pytest.raises(UserError, match="the call took longer than 60 s"):
        script.outcome(ROWS)


@pytest.mark.parametrize(
    "body",
    [
        "while (true) kept.push(new Uint8Array(1 << 20).fill(1))",
        "while (true) kept.push('x'.repeat(1 << 20) + kept.length)",
        "kept.push(new ArrayBuffer(1 << 30))",
        "return Array.from({length: 1e6}, (_, n) => ({id: n, name: 'x'.repeat(1000) + n}))",
    ],
)
def test_memory_is_limited(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "CALL_SECONDS", 30.0)
    script = Script("const kept = [];\nfunction process(row) " + CALM % body)
    try:
        _, bad, _ = script.outcome(ROWS)
    except UserError as error:
        assert error.code == "SCRIPT_LIMIT" and "row 3 of its batch" in error.message
        assert "128 MB of memory" in error.message
    else:  # a single value that is too large is an exception of its own
        assert [row.row["id"] for row in bad if isinstance(row.row, dict)] == [3]
    assert len(script.run(ROWS[:2])) == 2


def test_a_string_of_a_gigabyte_is_an_exception_of_its_row() -> None:
    good, (bad,), _ = Script("function process(row) " + CALM % "row.name = 'x'.repeat(1 << 30)").outcome(ROWS)
    assert len(good) == 4 and "RangeError: invalid string length" in bad.message


@pytest.mark.parametrize(
    "body", ["return Array(2000).fill({id: 1, name: 'x'.repeat(10000)})", "return Array(2e6).fill({id: 1, name: ''})"]
)
def test_output_is_limited(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "CALL_SECONDS", 30.0)
    script = Script("function process(row) " + CALM % body)
    with pytest.raises(UserError, match=r"larger than 16 MB; row 3 of its batch: \{\"id\":3,") as caught:
        script.outcome(ROWS)
    assert caught.value.code == "SCRIPT_LIMIT"


def test_rows_that_together_return_too_much_are_called_for_in_halves() -> None:
    script = Script("row => Array(200).fill({id: row.id, name: 'x'.repeat(1000)})")
    good = script.run([{"id": n} for n in range(200)])
    assert [row["id"] for row in good[::200]] == list(range(200)) and len(good) == 40_000


@pytest.mark.parametrize(
    "body",
    [
        "(function f() { return f() + 1 })()",
        "{ const o = {toString() { return '' + this }}; '' + o }",
        "JSON.parse('['.repeat(1e6))",
        "{ const p = new Proxy({}, {get(t, k, r) { return r[k] }}); p.x }",
    ],
)
def test_recursion_without_end_fails_its_row_only(body: str) -> None:
    good, (bad,), _ = Script("function process(row) " + CALM % body).outcome(ROWS)
    assert [row["id"] for row in good] == [1, 2, 4, 5]
    assert isinstance(bad.row, dict) and bad.row["id"] == 3
    assert "script execution failed" in bad.message


@pytest.mark.parametrize(
    "body",
    [
        "fetch('http://localhost')",
        "require('fs')",
        "process.exit()",
        "std.open('/etc/passwd')",
        "setTimeout(() => 1)",
        "XMLHttpRequest()",
        "Object.prototype.polluted = 1; if ({}.polluted !== 1) throw 'no'",
    ],
)
def test_there_is_nothing_outside_of_the_sandbox(body: str) -> None:
    code = "function f(row) " + CALM % f"{{ {body} }}"
    good, bad, _ = Script(code).outcome(ROWS)
    assert [row["id"] for row in good] == [1, 2, 4, 5] and len(bad) == 1


@pytest.mark.parametrize(
    "body",
    [
        "Array.prototype.push = Array.prototype.join = Array.isArray = () => { throw 'poison' }",
        "String.prototype.split = String.prototype.substring = () => 'poison'",
        "JSON.stringify = JSON.parse = Math.floor = Math.trunc = () => 'poison'",
        "Reflect.apply = Object.keys = Object.defineProperty = () => 'poison'",
        "globalThis.Error = globalThis.Map = globalThis.Int32Array = globalThis.BigInt = undefined",
        "for (const key of ['Object', 'Array', 'Map', 'Reflect', 'Math', 'globalThis']) delete this[key]",
        "undefined = 5; eval('row.name = \"a\"')",
        "new Function('globalThis.row = 1')()",
        "row.__proto__ = {name: 'poison', id: 7}",
        "row = new Proxy(row, {get: (t, k) => t[k]})",
        "import('x').catch(() => 1)",
        "Promise.resolve().then(() => { throw 'later' })",
    ],
)
def test_a_script_that_poisons_its_globals_harms_neither_its_rows_nor_another_script(body: str) -> None:
    script = Script("function process(row) " + CALM % f"{{ {body} }}")
    columns = [{**row, "_gs_op": "i"} for row in ROWS]
    assert script.run(ROWS) == columns
    assert script.run(ROWS) == columns
    assert Script("row => ({...row, name: [1, 2].join()})").run(ROWS[:1])[0]["name"] == "1,2"


@pytest.mark.parametrize(
    "body",
    [
        "Object.setPrototypeOf(Uint8Array.prototype, null)",
        "Object.defineProperty(Array.prototype, '0', {set() { throw 'poison' }})",
    ],
)
def test_a_script_that_breaks_the_sandbox_gets_a_new_one(body: str) -> None:
    script = Script("function process(row) " + CALM % f"{{ {body} }}")
    with pytest.raises(UserError, match="the script has replaced built-in objects that the sandbox needs"):
        script.outcome(ROWS)
    assert len(script.run(ROWS[:2])) == 2


def test_a_compiled_sandbox_is_kept_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = b"\0asm\1\0\0\0"
    modules._compiled(code)
    (file,) = (tmp_path / "streamling").iterdir()
    first = file.stat().st_mtime_ns
    modules._compiled(code)
    assert file.stat().st_mtime_ns == first
    file.write_bytes(b"damaged")
    modules._compiled(code)
    assert [f.name for f in file.parent.iterdir()] == [file.name] and file.read_bytes() != b"damaged"


def test_without_a_place_for_the_cache_scripts_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert modules._compiled(b"\0asm\1\0\0\0") is not None
    assert (tmp_path / "file").read_text() == ""


def test_a_file_that_is_not_a_sandbox_is_refused(tmp_path: Path) -> None:
    with pytest.raises(modules.BrokenImage):
        modules._compiled(b"no wasm")
    image = tmp_path / "empty.wasm"
    image.write_bytes(b"\0asm\1\0\0\0")
    with pytest.raises(modules.BrokenImage):
        machine.Machine(image)
