"""A pipeline file that is being written: its YAML may be broken in some nodes, and the others can still be read.

Works on files with a line per section and nodes indented below it, as people write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamling.errors import UserError
from streamling.spec.pipeline.nodes import Role
from streamling.spec.yaml import MapNode, load

_SECTION = re.compile(rf"( *)({'|'.join(role.section for role in Role)})[ \t]*:[ \t]*(?:#.*)?")
_NAME = re.compile(r" +([\w.-]+|'[^']*'|\"[^\"]*\")[ \t]*(?::.*)?")
# A file with more broken nodes than this is something else than a pipeline that is being written.
_MOST = 20
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
        load("\n".join(lines).removesuffix("\r"), file)
    except UserError as error:
        return error
    return None


def _entries(lines: list[str]) -> Iterator[_Entry]:
    """The nodes, as their indentation shows them, and what stands beside the sections."""
    section, outer, inner = "", -1, 0
    start: int | None = None
    for number, line in enumerate([*lines, _END]):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        if start is not None and indent <= inner:
            yield _Entry(section, start, number)
            start = None
        header = _SECTION.fullmatch(line.rstrip())
        if header is not None and outer in (-1, indent):
            section, outer, inner = header[2], indent, 0
        elif indent <= outer:
            section, inner, start = "", indent, number
        elif section:
            inner = inner or indent
            start = number if start is None else start


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
