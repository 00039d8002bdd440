"""YAML text as a tree in which every value has its position in the file.

The dialect is the YAML 1.2 core schema, so JSON is accepted as well: `yes`, `no`, `on` and `off` are text, dates are
text, merge keys (`<<`) are keys like any other, keys of a map are unique, and a file has one document. A node has both
the value that the core schema gives *and* the text as written (`ScalarNode.text`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamStartEvent,
)
from ruamel.yaml.reader import ReaderError

from streamling.errors import INVALID_YAML, UserError, Where
from streamling.spec.yaml.mistakes import TEMPLATED, USE_SPACES, ParseFailure, find_mistake, is_templated, odd_space
from streamling.spec.yaml.scanner import MAX_DEPTH, TabScanner
from streamling.spec.yaml.starred import quote, without_secrets
from streamling.spec.yaml.written_text import WrittenText

Scalar = str | int | float | bool | None

# An alias takes a few characters and repeats a whole tree, so nested aliases grow without bound ("billion laughs").
# This limit and MAX_DEPTH count the tree with its aliases expanded and are far above any real pipeline.
MAX_NODES = 100_000
# Python itself refuses to print integers of several thousand digits.
MAX_NUMBER = 1_000

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_CORE = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """One value. `text` is the value as written, without quotes and block indentation."""

    where: Where
    value: Scalar
    text: str
    origin: Where | None = None
    """Position of the first character of `text`; known only if the lines of `text` are in the file unchanged."""
    written: WrittenText | None = None
    """The text in the file, if it differs from the lines of `text`."""

    def plain(self) -> Scalar:
        return self.value

    def locate(self, line: int, column: int) -> Where | None:
        """The position in the file of a line and column (from 1) of the text; None if there is no such line."""
        lines = self.text.split("\n")
        if not 1 <= line <= len(lines) or column < 1:
            return None
        if self.written is not None:
            offset = sum(len(text) + 1 for text in lines[: line - 1]) + column - 1
            return self.written.locate(self.text, offset)
        if self.origin is None:
            return self.where
        column = min(column, len(lines[line - 1]) + 1)
        return Where(self.origin.file, self.origin.line + line - 1, self.origin.column + column - 1)


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list of nodes."""

    where: Where
    items: tuple[Node, ...]

    def plain(self) -> list[object]:
        return [item.plain() for item in self.items]


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One key of a map as written, with its own position, and its value."""

    key: str
    where: Where
    value: Node


@dataclass(frozen=True, slots=True)
class MapNode:
    """A map in the order of the file. Keys are text as written, also `1` and `true`."""

    where: Where
    entries: tuple[MapEntry, ...]

    def entry(self, key: str) -> MapEntry | None:
        return next((entry for entry in self.entries if entry.key == key), None)

    def get(self, key: str) -> Node | None:
        entry = self.entry(key)
        return entry.value if entry else None

    def plain(self) -> dict[str, object]:
        return {entry.key: entry.value.plain() for entry in self.entries}


Node = MapNode | ListNode | ScalarNode


def load(text: str, file: str) -> MapNode:
    """The single document of `text`, which must be a map. Raises UserError INVALID_YAML with the position."""
    node = compose(text, file)
    if node is None:
        raise _invalid("the file is empty", Where(file, 1, 1))
    if not isinstance(node, MapNode):
        raise _invalid(f"the document must be a map, not {describe(node)}", node.where)
    return node


def compose(text: str, file: str, public: Collection[str] | None = None) -> Node | None:
    """As `load`, for a document of any type; None for a file without a document.

    Errors quote no secrets, and with `public` only values of these keys.
    """
    text = text.removeprefix("\ufeff")
    try:
        return _Composer(text, file).document()
    except UserError as error:
        error.message = without_secrets(error.message, text, public)
        error.args = (error.message,)
        error.hint = without_secrets(error.hint, text, public) if error.hint else None
        if error.where is not None and is_templated(text, error.where.line):
            error.hint = TEMPLATED
        raise


def describe(node: Node) -> str:
    """The type of a node, as messages name it."""
    match node:
        case MapNode():
            return "a map"
        case ListNode():
            return "a list"
        case ScalarNode(value=None):
            return "empty"
        case ScalarNode(value=bool(value)):
            return str(value).lower()
        case ScalarNode(value=str()):
            return "text"
        case _:
            return "a number"


@dataclass(frozen=True, slots=True)
class _SizedNode:
    """A node with the size and height of its tree, aliases expanded."""

    node: Node
    size: int = 1
    height: int = 1


class _Composer:
    """Builds the tree from the parser's events; one instance per text."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._events = self._parse()
        self._anchors: dict[str, _SizedNode | None] = {}

    def document(self) -> Node | None:
        node: Node | None = None
        for event in self._events:
            if not isinstance(event, DocumentStartEvent):
                continue
            if node is not None:
                raise _invalid("the file has more than one document", self._where(event.start_mark))
            node = self._node(next(self._events), depth=1).node
            if not isinstance(next(self._events), DocumentEndEvent):
                raise _invalid("the document does not end", node.where)
        # `---` alone is an empty document; treat it as a file without a document.
        return None if isinstance(node, ScalarNode) and node.text == "" and node.value is None else node

    def _parse(self) -> Iterator[Event]:
        last = Where(self._file, 1, 1)
        parser = YAML(typ="safe", pure=True)
        parser.Scanner = TabScanner
        try:
            for event in parser.parse(self._text):
                last = self._where(event.start_mark)
                if not isinstance(event, StreamStartEvent):
                    yield event
        except MarkedYAMLError as error:
            # Not chained: the parser's message quotes the file, secrets included.
            raise self._syntax_error(error, last) from None
        except ReaderError as error:
            raise _invalid(
                f"the character U+{ord(self._text[error.position]):04X} is not allowed", self._at(error.position)
            ) from error
        except UserError:
            raise
        except Exception:
            # The parser raises Python's own exceptions for some malformed escapes, numbers and directives.
            raise _invalid("the text cannot be parsed near this position", last) from None

    def _syntax_error(self, error: MarkedYAMLError, last: Where) -> UserError:
        problem = str(error.problem or error.context or "the text cannot be parsed")
        mark = error.problem_mark or error.context_mark
        where = self._where(mark) if mark is not None else last
        if "'\\t'" in problem:
            return _invalid("tabs cannot be used for indentation", where, hint=USE_SPACES)
        start_mark = error.context_mark
        if "unexpected end of stream" in problem and start_mark is not None:
            return _invalid("the quote opened here is never closed", self._where(start_mark))
        if str(error.context).startswith("while parsing a flow") and start_mark is not None:
            opening = self._where(start_mark)
            return _invalid(f"{problem}, inside the brackets opened in line {opening.line}", where)
        start = self._where(start_mark) if start_mark is not None else where
        failure = ParseFailure(
            str(error.context),
            problem,
            where.line,
            where.column,
            start=(start.line, start.column),
            last=(last.line, last.column),
        )
        mistake = find_mistake(self._text, failure)
        if mistake is None:
            return _invalid(problem, where)
        return _invalid(mistake.problem, Where(self._file, mistake.line, mistake.column), hint=mistake.hint)

    def _node(self, event: Event, depth: int) -> _SizedNode:
        if depth > MAX_DEPTH:
            raise _invalid(f"more than {MAX_DEPTH} levels deep", self._where(event.start_mark))
        if isinstance(event, AliasEvent):
            return self._alias(event, depth)
        assert isinstance(event, NodeEvent)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        built: _SizedNode
        if isinstance(event, MappingStartEvent):
            built = self._map(event, depth)
        elif isinstance(event, SequenceStartEvent):
            built = self._list(event, depth)
        else:
            assert isinstance(event, ScalarEvent)
            built = _SizedNode(self._scalar(event))
        if built.size > MAX_NODES:
            raise _invalid(f"more than {MAX_NODES} values, aliases counted", built.node.where)
        if event.anchor is not None:
            self._anchors[event.anchor] = built
        return built

    def _alias(self, event: AliasEvent, depth: int) -> _SizedNode:
        where = self._where(event.start_mark)
        if event.anchor not in self._anchors:
            raise _invalid(f"the alias {quote(f'*{event.anchor}')} has no anchor before it", where)
        target = self._anchors[event.anchor]
        if target is None:
            raise _invalid(f"the alias {quote(f'*{event.anchor}')} is inside its own anchor", where)
        if depth + target.height > MAX_DEPTH:
            raise _invalid(f"more than {MAX_DEPTH} levels deep, aliases counted", where)
        return target

    def _map(self, event: MappingStartEvent, depth: int) -> _SizedNode:
        where = self._where(event.start_mark)
        self._check_collection_tag(event, "map", where)
        entries: dict[str, MapEntry] = {}
        size, height = 1, 0
        while not isinstance(opening := next(self._events), MappingEndEvent):
            key = self._node(opening, depth + 1).node
            key_where = self._where(opening.start_mark)
            if not isinstance(key, ScalarNode):
                raise _invalid("a key must be text, not a map or a list", key_where)
            if isinstance(opening, ScalarEvent) and opening.style is None and (name := odd_space(key.text)) is not None:
                raise _invalid(f"the key is indented with {name} instead of spaces", key_where, hint=USE_SPACES)
            if (first := entries.get(key.text)) is not None:
                raise _invalid(f"duplicate key {quote(key.text)}, first in line {first.where.line}", key_where)
            value = self._node(next(self._events), depth + 1)
            size, height = size + 1 + value.size, max(height, value.height)
            self._check_size(size, key_where)
            entries[key.text] = MapEntry(key.text, key_where, _visible(value.node, key_where))
        return _SizedNode(MapNode(where, tuple(entries.values())), size, height + 1)

    def _list(self, event: SequenceStartEvent, depth: int) -> _SizedNode:
        where = self._where(event.start_mark)
        self._check_collection_tag(event, "seq", where)
        items: list[Node] = []
        size, height = 1, 0
        while not isinstance(opening := next(self._events), SequenceEndEvent):
            item = self._node(opening, depth + 1)
            size, height = size + item.size, max(height, item.height)
            self._check_size(size, where)
            items.append(item.node)
        return _SizedNode(ListNode(where, tuple(items)), size, height + 1)

    def _scalar(self, event: ScalarEvent) -> ScalarNode:
        where = self._where(event.start_mark)
        text = _without_surrogates(event.value, where)
        tag = _tag(event)
        if tag is None or tag == "!":
            value = _core_value(text, where) if event.style is None and tag is None else text
        elif tag == _CORE + "str":
            value = text
        elif tag in {_CORE + name for name in ("int", "float", "bool", "null")}:
            value = _core_value(text, where)
        else:
            raise _unknown_tag(tag, where)
        origin = self._origin(event, text)
        written = None
        if origin is None and text:
            raw = self._text[event.start_mark.index : event.end_mark.index]
            written = WrittenText(raw, event.style, where)
        return ScalarNode(where, value, text, origin, written)

    def _origin(self, event: ScalarEvent, text: str) -> Where | None:
        start, end = event.start_mark, event.end_mark
        if event.style == "|":
            return self._literal_origin(event, text)
        if event.style == ">" or start.line != end.line:
            return None
        # Counted from the end: an anchor or a tag may precede the text, only a closing quote follows it.
        quote = 0 if event.style is None else 1
        first = end.index - quote - len(text)
        if first < start.index or self._text[first : end.index - quote] != text:
            return None
        return Where(self._file, end.line + 1, end.column - quote - len(text) + 1)

    def _literal_origin(self, event: ScalarEvent, text: str) -> Where | None:
        if event.anchor is not None or _tag(event) is not None:
            return None
        written = self._text[event.start_mark.index : event.end_mark.index].splitlines()[1:]
        for source, line in zip(written, text.split("\n"), strict=False):
            if line.strip() and source.endswith(line):
                return Where(self._file, event.start_mark.line + 2, len(source) - len(line) + 1)
        return None

    def _check_collection_tag(self, event: NodeEvent, name: str, where: Where) -> None:
        if (tag := _tag(event)) not in (None, "!", _CORE + name):
            raise _unknown_tag(str(tag), where)

    def _check_size(self, size: int, where: Where) -> None:
        if size > MAX_NODES:
            raise _invalid(f"more than {MAX_NODES} values, aliases counted", where)

    def _where(self, mark: StringMark) -> Where:
        return Where(self._file, mark.line + 1, mark.column + 1)

    def _at(self, index: int) -> Where:
        before = self._text[:index].replace("\r\n", "\n").replace("\r", "\n")
        return Where(self._file, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _invalid(problem: str, where: Where, *, hint: str | None = None) -> UserError:
    return UserError(INVALID_YAML, f"invalid YAML: {problem}", where=where, hint=hint)


def _unknown_tag(tag: str, where: Where) -> UserError:
    written = f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag
    return _invalid(f"the tag {quote(written)} is not part of the core schema", where)


def _visible(node: Node, key: Where) -> Node:
    """An omitted value gets the position of its key; the parser's own would be that of the next token."""
    return replace(node, where=key) if isinstance(node, ScalarNode) and node.value is None and not node.text else node


def _tag(event: NodeEvent) -> str | None:
    # Aliases have no tag, and the type of a tag is not part of the parser's interface.
    tag = getattr(event, "tag", None)
    return None if tag is None else str(tag)


def _without_surrogates(text: str, where: Where) -> str:
    """Joins the two escapes that JSON uses for a character above U+FFFF; half of a pair is an error."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise _invalid("a text has half of a surrogate pair", where) from error


def _core_value(text: str, where: Where) -> Scalar:
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text) or _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        if len(text) > MAX_NUMBER:
            raise _invalid(f"a number has more than {MAX_NUMBER} digits", where)
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float("-inf" if text[0] == "-" else "inf")
    return float("nan") if text in _NAN else text
