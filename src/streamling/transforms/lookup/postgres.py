"""A lookup from a Postgres query: one statement, so all rows are of one moment. Rows come as CSV, which Arrow reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamling.clients.postgres import ConnectionOptions, PostgresSession, RowRejected, quote
from streamling.connector import Discovery
from streamling.connector.lookup import MOST_BYTES, Lookup
from streamling.errors import LOOKUP, SCHEMA_NOT_FOUND, SCHEMA_UNUSABLE, PermanentError, StreamlingError, UserError
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    SPARK_DIGITS,
    STRING,
    TIMESTAMP,
    TIMESTAMP_UTC,
    DataType,
    Field,
    Schema,
    decimal,
)
from streamling.retry import look_up
from streamling.sinks.postgres import connection_options
from streamling.spec.pipeline import NodeSpec
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

# By the number that Postgres gives a type; all others are read as text.
_TYPES = {
    16: BOOLEAN,
    17: BINARY,
    20: INT64,
    21: INT16,
    23: INT32,
    700: FLOAT32,
    701: FLOAT64,
    1082: DATE,
    1114: TIMESTAMP,
    1184: TIMESTAMP_UTC,
}
_NUMERIC = 1700
# Rows are decoded in chunks of this size.
_CHUNK = 4 << 20


def look_up_query_columns(node: NodeSpec, query: str, settings: Settings, seconds: float) -> Discovery:
    """The columns of the query's result. Raises StreamlingError."""
    return look_up(lambda left: Discovery(_describe(node, query, settings, left)), f"lookup '{node.name}'", seconds)


def _describe(node: NodeSpec, query: str, settings: Settings, seconds: float) -> Schema:
    server = replace(_server(node, settings), connect_s=max(1.0, seconds), statement_s=max(1.0, seconds))
    session = PostgresSession(server, name=node.name, condition=SCHEMA_NOT_FOUND, node=node.name, reads_only=True)
    try:
        with session.transaction():
            columns = session.columns(f"SELECT * FROM ({_inner(query)}) AS q LIMIT 0")
    except RowRejected as error:
        raise UserError(SCHEMA_NOT_FOUND, f"Postgres at {server}: {error}") from error
    except StreamlingError as error:
        error.where = error.where or node.locate("query")
        raise
    finally:
        session.close()
    names = [column.name for column in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        text = f"{node.described()}: two columns of the query are named '{twice}'"
        raise UserError(SCHEMA_UNUSABLE, text, node=node.name, where=node.locate("query"), hint="give one an alias")
    return Schema(tuple(Field(column.name, _type(column)) for column in columns))


def _type(column: Any) -> DataType:
    """A number without a declared precision is read as text: it may have any digits."""
    if column.type_code == _NUMERIC:
        fits = column.precision is not None and column.precision <= SPARK_DIGITS and column.scale >= 0
        return decimal(column.precision, column.scale) if fits and column.scale <= column.precision else STRING
    return _TYPES.get(column.type_code, STRING)


class QueryLookup(Lookup):
    """Runs the query at every refresh: only the database knows whether its result has changed."""

    def __init__(self, node: NodeSpec, query: str, settings: Settings, refresh_s: float) -> None:
        self.refresh_s = refresh_s
        self._name = node.name
        self._query = query
        self._columns = Schema(())
        self._session = PostgresSession(
            _server(node, settings), name=node.name, condition=LOOKUP, node=node.name, hint=_hint, reads_only=True
        )

    def prepare(self, columns: Schema) -> None:
        self._columns = columns

    def read(self) -> pa.Table:
        import pyarrow as pa

        from streamling.formats.arrow import arrow_schema

        items = ", ".join(f"{_expression(field)} AS {quote(field.name)}" for field in self._columns)
        statement = f"COPY (SELECT {items} FROM ({_inner(self._query)}) AS q) TO STDOUT (FORMAT csv)"
        batches: list[pa.RecordBatch] = []
        size = 0
        try:
            with self._session.transaction(), closing(self._session.copy_out(statement)) as rows:
                for chunk in _chunks(rows):
                    batches += self._decode(chunk).to_batches()
                    size += batches[-1].nbytes
                    self._check_size(size)
        except RowRejected as error:
            raise PermanentError(LOOKUP, f"the query failed: {error}", node=self._name) from error
        return pa.Table.from_batches(batches, arrow_schema(self._columns))

    def _decode(self, data: bytes) -> pa.Table:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        from streamling.formats.arrow import arrow_schema

        schema = arrow_schema(self._columns)
        types = {f.name: _read_as(f, schema.field(f.name).type) for f in self._columns}
        convert = pacsv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        )
        read = pacsv.ReadOptions(column_names=list(types), block_size=len(data) + 1, use_threads=False)
        try:
            table = pacsv.read_csv(
                pa.py_buffer(data), read, pacsv.ParseOptions(newlines_in_values=True), convert
            ).combine_chunks()
            return pa.table([_cast(table.column(f.name), f) for f in schema], schema=schema)
        except pa.ArrowInvalid as error:
            message = f"a value of the query does not fit its column: {str(error).splitlines()[0]}"
            raise PermanentError(LOOKUP, message, node=self._name, hint="cast it in the query", cause=error) from error

    def _check_size(self, size: int) -> None:
        if size > MOST_BYTES:
            message = f"the result of the query has more than {MOST_BYTES >> 20} MB in memory"
            hint = "leave out rows and columns that no query of the pipeline needs"
            raise PermanentError(LOOKUP, message, node=self._name, hint=hint)

    def close(self) -> None:
        self._session.close()


def _server(node: NodeSpec, settings: Settings) -> ConnectionOptions:
    return connection_options(settings.postgres_connection(node.name), settings.postgres_sink)


def _inner(query: str) -> str:
    """The query as a part of another one: a comment at its end must not hide what follows."""
    return f"{query.strip().rstrip(';')}\n"


def _hint(state: str | None) -> str | None:
    return "check 'query' of the lookup" if state is not None and state.startswith("42") else None


def _expression(field: Field) -> str:
    """The column as CSV text that Arrow reads exactly."""
    name = f"q.{quote(field.name)}".replace("%%", "%")
    match field.type.kind:
        case "timestamp":
            return f"(extract(epoch FROM {name}) * 1000000)::int8"
        case "binary":
            return f"encode({name}, 'hex')"
        case "string":
            return f"{name}::text"
    return name


def _read_as(field: Field, type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return {"timestamp": pa.int64(), "binary": pa.string()}.get(field.type.kind, type_)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    import pyarrow as pa

    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_timestamp(field.type):
        zone = field.type.tz
        return array.cast(pa.timestamp("us", zone)).cast(field.type)
    if pa.types.is_binary(field.type) or pa.types.is_fixed_size_binary(field.type):
        return pa.array([None if v is None else bytes.fromhex(v) for v in array.to_pylist()], field.type)
    return array


def _chunks(rows: Iterator[bytes]) -> Iterator[bytes]:
    """The server sends each row in a message of its own."""
    parts: list[bytes] = []
    size = 0
    for row in rows:
        parts.append(bytes(row))
        size += len(row)
        if size >= _CHUNK:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)
