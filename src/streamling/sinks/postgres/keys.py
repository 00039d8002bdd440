"""Keys as the table compares them: values that differ in the input may be the same key there.

Two rows of one key must not be in one statement, and the last of them wins. So key values are folded to what their
column compares; where that is not known, the column cannot be a key.
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
    """Which values are equal for a column."""

    NAN = "all NaN"
    FLOAT = "all NaN, and both zeros"
    UUID = "upper and lower case, with and without hyphens and braces"
    SPACES = "with and without spaces at the end"
    CASE = "upper and lower case, as the database sees them"


def fold_values(session: PostgresSession, values: pa.Array, fold: Fold) -> pa.Array:
    """The values, made equal where they are equal for the column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if fold in (Fold.NAN, Fold.FLOAT):
        numbers = values.cast(pa.float64())
        single = pc.if_else(pc.is_nan(numbers), float("nan"), numbers)
        return pc.add(single, 0.0) if fold is Fold.FLOAT else single
    if fold is Fold.UUID:  # other texts stay as they are, and the server rejects them
        plain = pc.ascii_lower(pc.replace_substring_regex(values, "[{}-]", ""))
        return pc.if_else(pc.match_substring_regex(values, _UUID), plain, values)
    if fold is Fold.SPACES:
        return pc.utf8_rtrim(values, characters=" ")
    return _lower(session, values)


def _lower(session: PostgresSession, values: pa.Array) -> pa.Array:
    """In lower case, by the server: it depends on the locale of the database."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = values.dictionary_encode()
    session.execute("SAVEPOINT keys")
    try:
        texts: list[Any] = [text for (text,) in session.rows(_LOWER, (encoded.dictionary.to_pylist(),))]
    except RowRejected:  # the server rejects one of the texts; its row is found when it is written
        session.execute("ROLLBACK TO keys; RELEASE keys")
        return pc.ascii_lower(values)
    session.execute("RELEASE keys")
    return pa.array(texts, pa.string()).take(encoded.indices)
