"""The parser's scanner, with the tabs that YAML 1.2 allows: between tokens and behind them, never as indentation."""

from __future__ import annotations

from typing import Any

from ruamel.yaml.scanner import Scanner

_BLANKS = " \t"
_BREAKS = "\r\n\x85\u2028\u2029"
_END = "\0" + _BREAKS


class TabScanner(Scanner):
    """Refuses a tab only where it would indent something."""

    def scan_to_next_token(self) -> None:
        reader: Any = self.reader
        if reader.index == 0 and reader.peek() == "\ufeff":
            reader.forward()
        while True:
            self._skip_blanks()
            if reader.peek() == "#":
                while reader.peek() not in _END:
                    reader.forward()
            if not self.scan_line_break():
                return
            if not self.flow_level:
                self.allow_simple_key = True

    def scan_plain_spaces(self, indent: Any, start_mark: Any) -> Any:
        """As the parser's own; with a tab among the blanks, it stands inside the text or at the end of its line."""
        reader: Any = self.reader
        length = 0
        while reader.peek(length) in _BLANKS:
            length += 1
        if "\t" not in (blanks := reader.prefix(length)):
            return super().scan_plain_spaces(indent, start_mark)
        if reader.peek(length) in _END:
            reader.forward(length)
            return super().scan_plain_spaces(indent, start_mark)
        reader.forward(length)
        return [blanks]

    def _skip_blanks(self) -> None:
        reader: Any = self.reader
        while reader.peek() == " " or (self.flow_level and reader.peek() == "\t"):
            reader.forward()
        if reader.peek() != "\t":
            return
        length = 0
        while reader.peek(length) in _BLANKS:
            length += 1
        closes = reader.peek(length) in _END + "#"
        if closes or not self._at_the_start_of_a_line():
            reader.forward(length)
            if not closes:
                # What follows a tab has no column: no map and no list can begin there.
                self.allow_simple_key = False

    def _at_the_start_of_a_line(self) -> bool:
        reader: Any = self.reader
        before: str = reader.buffer[reader.pointer - reader.column : reader.pointer]
        return not before.strip(_BLANKS)
