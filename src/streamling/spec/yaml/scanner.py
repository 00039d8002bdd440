"""The parser's scanner, extended by the tabs that YAML 1.2 allows: between and after tokens, not as indentation."""

from __future__ import annotations

from typing import Any

from ruamel.yaml.scanner import Scanner, ScannerError

_SPACES = " \t"
_BREAKS = "\r\n\x85\u2028\u2029"
_END = "\0" + _BREAKS


# Far above any real pipeline.
MAX_DEPTH = 100


class TabScanner(Scanner):
    """Refuses a tab only as indentation."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
        """As in the base class, which takes seconds for some thousand brackets before the tree can refuse them."""
        if self.flow_level > MAX_DEPTH:
            raise ScannerError(None, None, f"more than {MAX_DEPTH} levels deep", self.reader.get_mark())
        super().fetch_flow_collection_start(TokenClass, to_push)

    def scan_to_next_token(self) -> None:
        reader: Any = self.reader
        if reader.index == 0 and reader.peek() == "\ufeff":
            reader.forward()
        while True:
            self._skip_spaces()
            if reader.peek() == "#":
                while reader.peek() not in _END:
                    reader.forward()
            if not self.scan_line_break():
                return
            if not self.flow_level:
                self.allow_simple_key = True

    def scan_plain_spaces(self, indent: Any, start_mark: Any) -> Any:
        """As in the base class, except that a tab is accepted inside the text and at the end of its line."""
        reader: Any = self.reader
        length = 0
        while reader.peek(length) in _SPACES:
            length += 1
        if "\t" not in (spaces := reader.prefix(length)):
            return super().scan_plain_spaces(indent, start_mark)
        if reader.peek(length) in _END:
            reader.forward(length)
            return super().scan_plain_spaces(indent, start_mark)
        reader.forward(length)
        return [spaces]

    def _skip_spaces(self) -> None:
        reader: Any = self.reader
        while reader.peek() == " " or (self.flow_level and reader.peek() == "\t"):
            reader.forward()
        if reader.peek() != "\t":
            return
        length = 0
        while reader.peek(length) in _SPACES:
            length += 1
        ends_line = reader.peek(length) in _END + "#"
        if ends_line or not self._is_at_line_start():
            reader.forward(length)
            if not ends_line:
                # The column after a tab is not defined, so no map and no list can begin there.
                self.allow_simple_key = False

    def _is_at_line_start(self) -> bool:
        reader: Any = self.reader
        before: str = reader.buffer[reader.pointer - reader.column : reader.pointer]
        return not before.strip(_SPACES)
