"""The text of a script: which function is called, which columns it reads, which line an error is in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from streamling.transforms.script.machine import Machine, ScriptFault, Stopped
from streamling.transforms.script.typescript import TranspileError, original_line, syntax_error, transpile

TYPESCRIPT = frozenset({"typescript", "ts"})
START_SECONDS = 10.0
"""Limit of the statements outside of functions, which run once per sandbox."""
_RESULT = "globalThis.__streamling_function"
_ASSIGN = f"{_RESULT} = "
_COMMENTS = re.compile(r"(?:\s|//[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_ANONYMOUS = re.compile(r"(?:async\s+)?function\s*\*?\s*\(|(?:async\s*)?\([^)]*\)[^{}=]*=>|(?:async\s+)?[\w$]+\s*=>")
_DECLARED = re.compile(r"^(?:async\s+)?(?:function\s*\*?\s*|(?:const|let|var)\s+)([A-Za-z_$][\w$]*)", re.MULTILINE)
# Other frames are ours. A property of null is reported at the last place before it that the engine has noted.
_FRAME = re.compile(r"^\s*at (?:(.*?) \()?<input>:(\d+):(\d+)\)?\s*$")
_PROPERTY = re.compile(r"^cannot (?:read|set) property '([^']*)' of (?:null|undefined)$")
_PARAMETER = re.compile(
    r"^(?:function\s*[\w$]*\s*\(\s*(?P<a>[A-Za-z_$][\w$]*)\s*\)|\(\s*(?P<b>[A-Za-z_$][\w$]*)\s*\)\s*=>|(?P<c>[A-Za-z_$][\w$]*)\s*=>)"
)
_PATTERN = re.compile(r"^(?:function\s*[\w$]*\s*)?\(\s*\{\s*([\w$\s,]*)\}\s*\)")
_HIDDEN_READS = re.compile(r"\b(?:eval|arguments|with|Function)\b|\\u")


class ScriptError(Exception):
    """The script cannot run; line and column count from 1, in the text as it was written. None: unknown."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Program:
    """A script as it is loaded into a sandbox."""

    source: str
    code: str
    transpiled: bool

    def line(self, line: int) -> int:
        """The line of the script for a line of the code."""
        return original_line(self.source, self.code, line) if self.transpiled else line

    def place(self, stack: str, message: str = "") -> int | None:
        """The line of the script where an error was thrown."""
        frames = self._frames(stack, message)
        return frames[0][1] if frames else None

    def trace(self, stack: str, message: str = "") -> list[str]:
        """The functions of the script that were running, innermost first."""
        return [f"{name or 'script'} (line {line})" for name, line in self._frames(stack, message)]

    def _frames(self, stack: str, message: str) -> list[tuple[str | None, int]]:
        found = [match for text in stack.splitlines() if (match := _FRAME.match(text)) is not None]
        lines = [int(match[2]) for match in found]
        named = _PROPERTY.match(message)
        if lines and named is not None:
            lines[0] = self._line_with(named[1], lines[0])
        return [(match[1], self.line(line)) for match, line in zip(found, lines, strict=True)]

    def _line_with(self, member: str, line: int) -> int:
        """The first line from this one on that has the member in it."""
        use = re.compile(rf"(?:\.|\[['\"]){re.escape(member)}(?![\w$])")
        later = enumerate(self.code.splitlines()[line - 1 :], line)
        return next((number for number, text in later if use.search(text)), line)

    @property
    def may_wait(self) -> bool:
        """Whether the script might return a promise."""
        return re.search(r"\b(?:async|Promise|then|import)\b", self.code) is not None


@lru_cache(maxsize=64)
def read_program(source: str, language: str) -> Program:
    """Transpile a script, and check its syntax. Raises ScriptError."""
    start = _COMMENTS.match(source)
    anonymous = _ANONYMOUS.match(source, start.end() if start else 0) is not None
    head = _ASSIGN if anonymous else ""
    if language in TYPESCRIPT:
        try:
            code = transpile(head + source)
        except TranspileError as error:
            raise _at(source, error.message, error.offset - len(head)) from error
        _check(source, code, transpiled=True)
        return Program(source, code, transpiled=True)
    _check(source, head + source, transpiled=False, shift=len(head))
    return Program(source, head + source, transpiled=False)


def _check(source: str, code: str, *, transpiled: bool, shift: int = 0) -> None:
    """Compile the code without running it."""
    machine = Machine()
    try:
        wrapped = f"(function () {{{code}\n}})"
        machine.evaluate(f"(0, eval)({json.dumps(wrapped)})", START_SECONDS)
    except ScriptFault as fault:
        frame = _FRAME.match(fault.stack.splitlines()[0]) if fault.stack else None
        line = int(frame[2]) if frame else None
        if transpiled:
            line = original_line(source, code, line) if line else None
            raise ScriptError(fault.message, line) from fault
        if (found := syntax_error(code)) is not None:
            raise _at(source, fault.message, found[1] - shift) from fault
        raise ScriptError(fault.message, line) from fault
    except Stopped as stopped:
        raise ScriptError(f"it cannot be compiled within the limits of the sandbox ({stopped})") from stopped
    finally:
        machine.close()


def _at(source: str, message: str, offset: int) -> ScriptError:
    offset = max(0, min(offset, len(source)))
    before = source[:offset]
    return ScriptError(message, before.count("\n") + 1, offset - before.rfind("\n"))


def load(machine: Machine, program: Program, known: Iterable[str]) -> int:
    """Run the script in a sandbox; returns a handle of its function. Raises ScriptError and Stopped.

    known   the globals of the sandbox before
    """
    # Programs are strict; an indirect `eval` of one is as a script in a browser. Its own declarations end with it.
    code = f"{program.code}\n;{_find_function(program, known)}"
    try:
        return machine.evaluate(f"(0, eval)({json.dumps(code)})", START_SECONDS)
    except ScriptFault as fault:
        if fault.message == _NO_FUNCTION:
            raise ScriptError("it has no function: write `function process(row) { ... }`") from fault
        raise ScriptError(str(fault), program.place(fault.stack)) from fault


_NO_FUNCTION = "no function"


def _find_function(program: Program, known: Iterable[str]) -> str:
    """An expression: the anonymous function, else `process`, else `invoke`, else the last function declared."""
    declared = list(dict.fromkeys(_DECLARED.findall(program.code)))
    names = [name for name in ("process", "invoke") if name in declared]
    names += [name for name in reversed(declared) if name not in names]
    tries = "".join(f'if (typeof {name} === "function") return {name};' for name in names)
    tries_anonymous = f'if (typeof {_RESULT} === "function") return {_RESULT};'
    listed = "{" + ",".join(f"{name!r}:1" for name in known) + "}"
    return (
        f"(() => {{ {tries_anonymous}{tries}"
        f"const __streamling_before = {listed}, __streamling_own = Object.getOwnPropertyNames(globalThis).reverse();"
        "for (const name of __streamling_own) "
        'if (__streamling_before[name] !== 1 && typeof globalThis[name] === "function")'
        f" return globalThis[name]; throw new Error('{_NO_FUNCTION}'); }})()"
    )


def columns_read(program: Program, function: str, columns: Iterable[str]) -> frozenset[str]:
    """The columns that the script can read; all of them unless the text shows that it reads only some.

    function   the text of the function that gets the row
    """
    everything = frozenset(columns)
    if _HIDDEN_READS.search(program.code):
        return everything
    pattern = _PATTERN.match(function)
    if pattern is not None:
        names = {name.strip() for name in pattern[1].split(",") if name.strip()}
        return everything & names if all(re.fullmatch(r"[\w$]+", name) for name in names) else everything
    parameter = _PARAMETER.match(function)
    if parameter is None:
        return everything
    name = next(group for group in parameter.groups() if group)
    uses = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])(?:\s*\??\.\s*([A-Za-z_$][\w$]*))?")
    found = [match[1] for match in uses.finditer(program.code)]
    # The parameter itself is the only use that is not followed by the name of a column.
    if found.count(None) != 1:
        return everything
    return everything & {column for column in found if column is not None}
