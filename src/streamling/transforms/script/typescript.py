"""TypeScript to JavaScript: types are removed, not checked. The transpiler is OXC, as a WebAssembly module.

Its error messages have no position. The position is found by cutting the text: a text that ends in an open comment
before the error fails because of the comment, and one that is cut behind the error fails as the whole text does.
"""

from __future__ import annotations

import re
from contextlib import closing
from difflib import SequenceMatcher
from typing import Any

from streamling.transforms.script.modules import TRANSPILER, bundled, wasm_engine

_TYPESCRIPT = 1 | 1 << 8
_OK, _UNCHANGED = 0, 1
_PREFIX = re.compile(r"^source parse error in \S+: ")
_TOKEN = re.compile(
    r"[A-Za-z_$][\w$]*|\d[\w.]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`|//[^\n]*|/\*.*?\*/|\S",
    re.DOTALL,
)


class TranspileError(Exception):
    """The text is not valid TypeScript; `offset` is the place of the error."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


def transpile(source: str) -> str:
    """JavaScript that does the same. Raises TranspileError."""
    with closing(_Transpiler()) as transpiler:
        code, error = transpiler.run(source)
        if error is not None:
            raise TranspileError(error, _find_error(transpiler, source, error))
        return code


def syntax_error(source: str) -> tuple[str, int] | None:
    """What is wrong with a text, and where; JavaScript is valid TypeScript, with few exceptions."""
    with closing(_Transpiler()) as transpiler:
        _, error = transpiler.run(source)
        return None if error is None else (error, _find_error(transpiler, source, error))


def _find_error(transpiler: _Transpiler, source: str, error: str) -> int:
    """The offset of the first token that the transpiler cannot accept."""
    # What a text that is cut may say before the error; a cut inside of a template, for example, is an open string.
    open_ = ("multiline comment", "EOF") if "Unterminated" in error else ("Unterminated", "EOF")
    places = [match.start() for match in _TOKEN.finditer(source)] + [len(source)]
    ends = [match.end() for match in _TOKEN.finditer(source)]
    low, high = 0, len(ends)  # the first `low` tokens are fine, the first `high` ones are not
    while low + 1 < high:
        middle = (low + high) // 2
        _, found = transpiler.run(source[: ends[middle - 1]] + " /*")
        if found is None or any(word in found for word in open_):
            low = middle
        else:
            high = middle
    return places[-1] if "EOF" in error and high == len(ends) else places[max(0, high - 1)]


def original_line(source: str, code: str, line: int) -> int:
    """The line of the source that became this line of the code."""
    before, after = _tokens(source), _tokens(code)
    matcher = SequenceMatcher(None, [text for text, _ in before], [text for text, _ in after], autojunk=False)
    pairs = [
        (after[block.b + i][1], before[block.a + i][1])
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
    ]
    return next((old for new, old in pairs if new >= line), source.count("\n") + 1)


def _tokens(text: str) -> list[tuple[str, int]]:
    return [(match[0], text.count("\n", 0, match.start()) + 1) for match in _TOKEN.finditer(text)]


class _Transpiler:
    """An instance of its own for every text: it has no state worth keeping, and takes a millisecond."""

    def __init__(self) -> None:
        import wasmtime

        self._store = wasmtime.Store(wasm_engine())
        self._store.set_epoch_deadline(1 << 40)
        self._store.set_limits(memory_size=256 << 20)
        self._store.set_wasi(wasmtime.WasiConfig())
        linker = wasmtime.Linker(wasm_engine())
        linker.define_wasi()
        self._exports = linker.instantiate(self._store, bundled(TRANSPILER)).exports(self._store)
        self._memory: Any = self._exports["memory"]

    def close(self) -> None:
        self._store.close()

    def run(self, source: str) -> tuple[str, str | None]:
        """The code, or what is wrong."""
        data = source.encode()
        name = b"script.ts"
        places = []
        for text in (name, data):
            place = self._call("qjst_alloc", len(text))
            self._memory.write(self._store, text, place)
            places += [place, len(text)]
        status = self._call("qjst_transform", *places, _TYPESCRIPT)
        try:
            if status == _UNCHANGED:
                return source, None
            if status == _OK:
                return self._take("qjst_result_ptr", "qjst_result_len"), None
            return "", _PREFIX.sub("", self._take("qjst_error_ptr", "qjst_error_len")) or "not valid TypeScript"
        finally:
            self._call("qjst_free", places[0], places[1])
            self._call("qjst_free", places[2], places[3])
            self._call("qjst_result_free")

    def _take(self, pointer: str, length: str) -> str:
        start, size = self._call(pointer), self._call(length)
        return bytes(self._memory.read(self._store, start, start + size)).decode(errors="replace")

    def _call(self, name: str, *arguments: int) -> int:
        function: Any = self._exports[name]
        return int(function(self._store, *arguments) or 0)
