"""Keys as the table compares them: values that differ in the input may be one key there.

Rows of one key must not meet in a statement, and the last of them counts. So they are told apart by what their column
makes of them; where that is not known, the column is refused as a key.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from streamling.clients.postgres import PostgresSession, RowRejected

if TYPE_CHECKING:
    import pyarrow as pa

_DIGITS = "([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}"
_UUID = rf"^(\{{{_DIGITS}\}}|{_DIGITS})$"
_LOWER = "SELECT lower(k) FROM unnest(%s::text[]) WITH ORDINALITY AS s (k, n) ORDER BY n"


class Fold(Enum):
    """What a column takes for one value."""

    NAN = "all that is not a number"
    FLOAT = "the same, and both zeros"
    UUID = "upper and lower case, with and without hyphens and braces"
    BLANKS = "with and without blanks at the end"
    CASE = "upper and lower case, as the database sees them"


def fold_values(session: PostgresSession, values: pa.Array, fold: Fold) -> pa.Array:
    """The values, made equal where the column takes them for one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if fold in (Fold.NAN, Fold.FLOAT):
        numbers = values.cast(pa.float64())
        single = pc.if_else(pc.is_nan(numbers), float("nan"), numbers)
        return pc.add(single, 0.0) if fold is Fold.FLOAT else single
    if fold is Fold.UUID:  # what is none stays as it is, and is refused alone
        plain = pc.ascii_lower(pc.replace_substring_regex(values, "[{}-]", ""))
        return pc.if_else(pc.match_substring_regex(values, _UUID), plain, values)
    if fold is Fold.BLANKS:
        return pc.utf8_rtrim(values, characters=" ")
    return _lowered(session, values)


def _lowered(session: PostgresSession, values: pa.Array) -> pa.Array:
    """By the server: it depends on the locale of the database."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = values.dictionary_encode()
    session.execute("SAVEPOINT keys")
    try:
        found: list[Any] = [text for (text,) in session.rows(_LOWER, (encoded.dictionary.to_pylist(),))]
    except RowRejected:  # a text that it does not take at all, whose row will be found
        session.execute("ROLLBACK TO keys; RELEASE keys")
        return pc.ascii_lower(values)
    session.execute("RELEASE keys")
    return pa.array(found, pa.string()).take(encoded.indices)
