"""Values of the sorting key: how the server writes them, how a query names them, how the state stores them.

Inside of this package a value is the text that the server has written: of text columns the hexadecimal digits of its
bytes, of times the time in UTC, of everything else what `toString` gives. So no value is rounded or ambiguous.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamling.connector import Json
from streamling.formats.clickhouse_syntax import quote_text, split_list

_WRAPPED = re.compile(r"LowCardinality\((.*)\)", re.DOTALL)
_INTEGER = re.compile(r"(U?)Int(8|16|32|64|128|256)")
_CALL = re.compile(r"([A-Za-z][A-Za-z0-9]*)(?:\((.*)\))?", re.DOTALL)
_RANGED = frozenset({"Date", "Date32", "DateTime", "DateTime64", "String", "FixedString", "UUID", "Decimal", "Bool"})
_RANGED_TEXT = "Int, UInt, Decimal, Date, DateTime, String, FixedString, UUID, IPv4, IPv6 or Enum of any size"
_ADDRESSES = frozenset({"IPv4", "IPv6"})
_ENUMS = frozenset({"Enum8", "Enum16"})
_TIMES = frozenset({"DateTime", "DateTime64"})
_TEXTS = frozenset({"String", "FixedString"})
_ARROW_NAMES = {"Date": "Date32", "Date32": "Date32", "DateTime": "Timestamp", "DateTime64": "Timestamp"}
_JSON_BITS = 64
RANGED_HINT = (
    f"the first column of its ORDER BY must be {_RANGED_TEXT}, and not Nullable: rows are read in ranges of it"
)


class WrongKeyValue(ValueError):
    """A text is not a value of a key column."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One part of a sorting key: a column or an expression, as SQL, and its ClickHouse type."""

    sql: str
    type: str

    @property
    def _plain(self) -> str:
        wrapped = _WRAPPED.fullmatch(self.type)
        return wrapped[1] if wrapped else self.type

    @property
    def _call(self) -> tuple[str, tuple[str, ...]]:
        call = _CALL.fullmatch(self._plain)
        return (call[1], split_list(call[2] or "")) if call else (self._plain, ())

    @property
    def _kind(self) -> str:
        return self._call[0]

    @property
    def is_ranged(self) -> bool:
        """Whether its values have an order without gaps such as NULL and NaN, so that every row is in a range."""
        return self.is_integer or self._kind in _RANGED | _ADDRESSES | _ENUMS

    @property
    def is_integer(self) -> bool:
        return _INTEGER.fullmatch(self._plain) is not None

    @property
    def shown(self) -> str:
        """SQL for the text of its value."""
        if self._kind in _TEXTS:
            return f"hex({self.sql})"
        if self._kind in _TIMES:
            return f"toString(toTimeZone({self.sql}, 'UTC'))"
        return f"toString({self.sql})"

    def literal(self, value: str) -> str:
        """SQL for a value."""
        match self._call:
            case "String", _:
                return f"unhex('{value}')"
            case "FixedString", [length]:
                return f"toFixedString(unhex('{value}'), {length})"
            case "DateTime", _:
                return f"toDateTime('{value}', 'UTC')"
            case "DateTime64", [digits, *_]:
                return f"toDateTime64('{value}', {digits}, 'UTC')"
        return f"CAST({quote_text(value)} AS {self._plain})"

    def successor(self, value: str) -> str | None:
        """The next integer; None if there is none, or if the values are not integers."""
        integer = _INTEGER.fullmatch(self._plain)
        if integer is None:
            return None
        following = int(value) + 1
        bits = int(integer[2]) - (not integer[1])
        return str(following) if following < 1 << bits else None

    # As a user writes it

    def parse(self, text: str) -> str:
        """The value of `start_at`. Raises WrongKeyValue; what the server alone can check, it checks."""
        if self.is_integer:
            if not re.fullmatch(r"[-+]?[0-9]+", text):
                raise WrongKeyValue(f"is '{text}'; it must begin with a whole number")
            return str(int(text))
        return text.encode().hex().upper() if self._kind in _TEXTS else text

    # In the state

    def to_json(self, value: str) -> dict[str, Json]:
        integer = _INTEGER.fullmatch(self._plain)
        if integer and int(integer[2]) <= _JSON_BITS:
            return {"value": int(value), "data_type": self._plain}
        if self._kind in _TEXTS:
            try:
                return {"value": bytes.fromhex(value).decode(), "data_type": "Utf8"}
            except UnicodeDecodeError:
                return {"value": value, "data_type": "Binary"}
        return {"value": value, "data_type": _ARROW_NAMES.get(self._kind, "Utf8")}

    def from_json(self, argument: Json) -> str:
        """Raises WrongKeyValue if the state does not have the form of `to_json`."""
        if not isinstance(argument, dict) or not isinstance(value := argument.get("value"), str | int):
            raise WrongKeyValue(f"{argument!r}")
        if self._kind in _TEXTS and argument.get("data_type") != "Binary":
            return str(value).encode().hex().upper()
        return str(value)
