"""A pipeline file that is being written: its YAML may be broken in some nodes, and the others can still be read.

Works on files with a line per section and nodes indented below it, as people write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamling.errors import INVALID_YAML, UserError
from streamling.spec.faults import nearest
from streamling.spec.pipeline.nodes import Role
from streamling.spec.yaml import MapNode, load

_NAME = re.compile(r" +([\w.-]+|'[^']*'|\"[^\"]*\")[ \t]*(?::.*)?")
# What a node or a section can begin with: a key, or a word that is to become one.
_KEY = re.compile(r" *([\w.-]+|'[^']*'|\"[^\"]*\")[ \t]*(?::[ \t]*(.*))?")
_SECTIONS = tuple(role.section for role in Role)
_SECTION = re.compile(rf"( *)({'|'.join(_SECTIONS)})[ \t]*:[ \t]*(?:#.*)?")
# A node whose name has other characters: no text follows the colon.
_ODD_NAME = re.compile(r" +[^\s:#][^:#]*:[ \t]*(?:\{.*|#.*)?")
# The last word before a block of text.
_BLOCK = re.compile(r".*[:\s-][|>][+-]?\d?[+-]?[ \t]*(?:#.*)?")
# A file with more broken nodes than this is something else than a pipeline that is being written.
_MOST = 20
# A longer query is not looked through for every line behind it.
_LOOK_BACK = 500
# A line after the last one that is not indented.
_END = "end"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What can be read of a file. The nodes that break its YAML are empty in `tree`."""

    tree: MapNode
    broken: dict[tuple[str, str], UserError] = field(default_factory=dict)
    """By section and name: why a node cannot be read."""
    problems: tuple[UserError, ...] = ()
    """Why lines without a name of their own cannot be read, such as a node with the name of another one."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """The lines of a node, from 0, without the one at `end`. Beside the sections `section` is empty."""

    section: str
    start: int
    end: int


def load_unfinished(text: str, file: str) -> Unfinished:
    """As `load`, also if some nodes break the YAML. Raises UserError if it is not a map without them."""
    lines = text.split("\n")
    broken: dict[tuple[str, str], UserError] = {}
    problems: list[UserError] = []
    first: UserError | None = None
    for _ in range(_MOST):
        error = _error(lines, file)
        if error is None:
            return Unfinished(load("\n".join(lines), file), broken, tuple(problems))
        first = first or error
        entries = list(_entries(lines))
        found = _find_broken(lines, entries, file)
        if found is None:
            break
        entry, error = found
        name = _empty(lines, entry, file)
        if name is not None:
            broken[entry.section, name] = error
        elif entry.section != Role.SINK.section:
            problems.append(error)
    raise first or AssertionError("no error")


def _error(lines: list[str], file: str) -> UserError | None:
    try:
        tree = load("\n".join(lines).removesuffix("\r"), file)
    except UserError as error:
        return error
    wrapped = tree.get("definition")
    entries = wrapped.entries if isinstance(wrapped, MapNode) else tree.entries
    # For YAML, a line of a query that is not indented is a key if there is a colon in it.
    sections = [number for number, entry in enumerate(entries) if entry.key in _SECTIONS]
    behind = entries[sections[0] :] if sections else ()
    stray = next((entry.where for entry in behind if len(entry.key.split()) > 1), None)
    message = "invalid YAML: this line is not indented, and is not the name of a section"
    return UserError(INVALID_YAML, message, where=stray) if stray is not None else None


def _entries(lines: list[str]) -> Iterator[_Entry]:
    """The nodes, as their indentation shows them, and what stands between and beside them."""
    section, outer, inner = "", -1, 0
    start: int | None = None
    owner = ""
    """The section of the entry that has begun."""
    for number, line in enumerate([*lines, _END]):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = _indent(line)
        if start is not None:
            if number < len(lines) and (
                indent > inner or (section and _belongs_above(lines, start, number, outer, inner))
            ):
                continue
            yield _Entry(owner, start, number)
            start = None
        header = _SECTION.fullmatch(line.rstrip())
        if header is not None and outer in (-1, indent):
            section, outer, inner = header[2], indent, 0
        elif indent <= outer:
            section = section if _is_stray(line) else ""
            inner = inner if section else indent
            start, owner = number, ""
        elif section:
            inner = inner or indent
            start, owner = number, section


def _following(lines: list[str], number: int) -> str:
    """The next line with something on it; empty if there is none."""
    following = (lines[n] for n in range(number + 1, len(lines)))
    return next((line for line in following if line.strip() and not line.lstrip().startswith("#")), "")


def _is_text(lines: list[str], start: int, end: int) -> bool:
    """Whether a node, of which these lines are the first, ends in a block of text, such as a query."""
    start = max(start, end - _LOOK_BACK)
    filled = [n for n in range(start, end) if lines[n].strip() and not lines[n].lstrip().startswith("#")]
    if len(filled) > 1 and _KEY.fullmatch(lines[filled[-1]].rstrip()) is None:
        return True  # text that goes on over several lines, without a sign at its beginning
    begins = next((number for number in reversed(filled) if _BLOCK.fullmatch(lines[number].rstrip())), None)
    return begins is not None and all(
        _indent(lines[number]) > _indent(lines[begins]) for number in filled if number > begins
    )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _belongs_above(lines: list[str], start: int, number: int, outer: int, inner: int) -> bool:
    """Whether a line that is not indented like the fields of the node above is a part of it all the same, by mistake:
    a line of a query or of text, a bracket that closes it, or a field. Without that line it would be another node.

    A word alone may also be the name of a node that is being typed. It is a part of a query if more text follows it,
    and of the node above if fields follow it that do not begin with a type.
    """
    line, following = lines[number], _following(lines, number)
    indent, key = _indent(line), _KEY.fullmatch(line.rstrip())
    if key is None:
        return indent != inner or _ODD_NAME.fullmatch(line.rstrip()) is None
    if ":" not in line:
        field_ = _KEY.fullmatch(following.rstrip()) if ":" in following and "::" not in following else None
        if field_ is None:
            return bool(following) and _is_text(lines, start, number)
        return outer < indent < _indent(following) and field_[1] != "type"
    has_value = bool(key[2]) and not key[2].startswith(("{", "#"))
    return outer < indent < inner and has_value


def _is_stray(line: str) -> bool:
    """Whether a line beside the sections does not end the one above: a word that is not the name of a section yet."""
    key = _KEY.fullmatch(line.rstrip())
    return key is None or (":" not in line and nearest(key[1], _SECTIONS) is None)


def _find_broken(lines: list[str], entries: list[_Entry], file: str) -> tuple[_Entry, UserError] | None:
    """The first node with which the file cannot be read any more, and why; None if it is not a node that breaks it.

    The error may name one before it, which is text without a colon, for example.
    """

    def error_until(count: int) -> UserError | None:
        """With the first nodes only."""
        return _error(lines[: entries[count - 1].end if count else entries[0].start], file)

    if not entries or error_until(0) is not None:
        return None
    readable, unreadable = 0, len(entries)
    error = error_until(unreadable)
    if error is None:
        return None
    while unreadable - readable > 1:
        middle = (readable + unreadable) // 2
        if (found := error_until(middle)) is None:
            readable = middle
        else:
            unreadable, error = middle, found
    line = error.where.line - 1 if error.where is not None else -1
    named = (entry for entry in entries[:readable] if entry.start <= line < entry.end)
    return next(named, entries[readable]), error


def _empty(lines: list[str], entry: _Entry, file: str) -> str | None:
    """Remove the lines of a node, but its name, which is returned. Without a name of its own it goes as well."""
    name = _NAME.fullmatch(lines[entry.start].rstrip())
    for number in range(entry.start, entry.end):
        lines[number] = ""
    if name is None or not entry.section:
        return None
    lines[entry.start] = f"{name[0][: name.end(1)]}:"
    if _error(lines[: entry.end], file) is None:
        return name[1].strip("'\"")
    lines[entry.start] = ""
    return None
