"""What the codes of ClickHouse's exceptions mean: the server answers 500 to most of them, whatever the reason.

a value does not fit             ValueRejected; the row is a bad row
nothing that a retry can change  ServerRefused
the query took too long          QueryTimeout
everything else                  by the status, as for other servers
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from streamling.clients.http import classify_status
from streamling.errors import Condition, PermanentError, StreamlingError, TransientError

if TYPE_CHECKING:
    import httpx

CODE_HEADER = "X-ClickHouse-Exception-Code"
NO_SUCH_TABLE = 60
_TEXT = re.compile(r"Code: (\d{1,6})\. DB::")

# By code, the name that ClickHouse gives it.
_VALUES = {
    6: "CANNOT_PARSE_TEXT",
    26: "CANNOT_PARSE_QUOTED_STRING",
    27: "CANNOT_PARSE_INPUT_ASSERTION_FAILED",
    38: "CANNOT_PARSE_DATE",
    41: "CANNOT_PARSE_DATETIME",
    53: "TYPE_MISMATCH",
    69: "ARGUMENT_OUT_OF_BOUND",
    70: "CANNOT_CONVERT_TYPE",
    72: "CANNOT_PARSE_NUMBER",
    117: "INCORRECT_DATA",
    128: "TOO_LARGE_ARRAY_SIZE",
    131: "TOO_LARGE_STRING_SIZE",
    153: "ILLEGAL_DIVISION",
    190: "SIZES_OF_ARRAYS_DONT_MATCH",
    321: "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE",
    349: "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN",
    376: "CANNOT_PARSE_UUID",
    395: "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO",
    407: "DECIMAL_OVERFLOW",
    441: "CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING",
    467: "CANNOT_PARSE_BOOL",
    469: "VIOLATED_CONSTRAINT",
    675: "CANNOT_PARSE_IPV4",
    676: "CANNOT_PARSE_IPV6",
    691: "UNKNOWN_ELEMENT_OF_ENUM",
}
_PERMANENT = {
    10: "NOT_FOUND_COLUMN_IN_BLOCK",
    16: "NO_SUCH_COLUMN_IN_TABLE",
    36: "BAD_ARGUMENTS",
    42: "NUMBER_OF_ARGUMENTS_DOESNT_MATCH",
    43: "ILLEGAL_TYPE_OF_ARGUMENT",
    44: "ILLEGAL_COLUMN",
    46: "UNKNOWN_FUNCTION",
    47: "UNKNOWN_IDENTIFIER",
    48: "NOT_IMPLEMENTED",
    50: "UNKNOWN_TYPE",
    56: "UNKNOWN_STORAGE",
    57: "TABLE_ALREADY_EXISTS",
    NO_SUCH_TABLE: "UNKNOWN_TABLE",
    62: "SYNTAX_ERROR",
    73: "UNKNOWN_FORMAT",
    80: "INCORRECT_QUERY",
    81: "UNKNOWN_DATABASE",
    115: "UNKNOWN_SETTING",
    164: "READONLY",
    169: "BAD_TYPE_OF_FIELD",
    192: "UNKNOWN_USER",
    193: "WRONG_PASSWORD",
    194: "REQUIRED_PASSWORD",
    195: "IP_ADDRESS_NOT_ALLOWED",
    215: "NOT_AN_AGGREGATE",
    218: "TABLE_IS_DROPPED",
    223: "UNEXPECTED_AST_STRUCTURE",
    291: "DATABASE_ACCESS_DENIED",
    344: "SUPPORT_IS_DISABLED",
    370: "DATA_TYPE_CANNOT_BE_USED_IN_TABLES",
    386: "NO_COMMON_TYPE",
    452: "SETTING_CONSTRAINT_VIOLATION",
    497: "ACCESS_DENIED",
    511: "UNKNOWN_ROLE",
    516: "AUTHENTICATION_FAILED",
}
_TIMEOUTS = {159: "TIMEOUT_EXCEEDED", 160: "TOO_SLOW"}
_LOGIN = "check the user and the password of the connection"
_HINTS = {
    81: "create the database, or name another one in `table` or in the connection",
    164: "the user may only read",
    497: "grant it to the user of the connection",
    **dict.fromkeys((192, 193, 194, 516), _LOGIN),
}


Classified = Callable[[Condition, str], StreamlingError]


class QueryTimeout(TransientError):
    """The server did not answer in time: a query for fewer rows may succeed."""


class ServerRefused(PermanentError):
    """The server refuses a request, and a retry cannot change that. `number`: the code of its exception."""

    def __init__(self, condition: Condition, message: str, number: int = 0, **details: Any) -> None:
        """`details`: as of all errors; without a hint among them, it is that of the number."""
        super().__init__(condition, message, **{"hint": _HINTS.get(number), **details})
        self.number = number


class ValueRejected(ServerRefused):
    """The server rejects a value of one of the rows."""

    @property
    def cause(self) -> str:
        """What is wrong, without values."""
        return f"{self.number} {_VALUES.get(self.number, '')}".strip()


def exception_number(response: httpx.Response) -> int | None:
    """The code of the exception that an answer reports, also with the status 200: the status was sent before the
    exception occurred, or by something in between."""
    header = response.headers.get(CODE_HEADER, "")
    if header.isascii() and header.isdigit():
        return int(header)
    text = _TEXT.search(response.text) if response.text.find("DB::") >= 0 else None
    return int(text[1]) if text else None


def classify_exception(response: httpx.Response) -> Classified:
    # An exception that is not known to be permanent may come with the status 200.
    return classify_number(
        exception_number(response), TransientError if response.is_success else classify_status(response)
    )


def classify_number(number: int | None, otherwise: type[StreamlingError]) -> Classified:
    """The error for an exception with this code."""
    if number in _VALUES:
        return partial(ValueRejected, number=number)
    if number in _PERMANENT:
        return partial(ServerRefused, number=number)
    return QueryTimeout if number in _TIMEOUTS else otherwise
