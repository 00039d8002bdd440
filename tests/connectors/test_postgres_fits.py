"""Given tables, on a real server: nothing is cut or rounded on the way, and keys are what the table takes for one."""

from __future__ import annotations

import math
import struct
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from streamling.errors import TABLE_UNFIT, UserError
from streamling.plan.types import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT64,
    OPERATION_FIELD,
    STRING,
    TIME64,
    TIMESTAMP,
    U256,
    UINT8,
    UINT16,
    UINT32,
    DataType,
    Field,
    Schema,
    decimal,
    list_of,
)
from support.postgres_samples import ITEMS, items, sink, write
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

MANY = 600
"""So many rows are copied; few are sent as arrays."""


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    found = postgres.database()
    found.execute("CREATE SCHEMA shop")
    return found


def keyed(type_: DataType) -> Schema:
    return Schema((Field("k", type_, nullable=False), Field("v", INT64), OPERATION_FIELD))


def refused(database: Database, columns: Schema, key: tuple[str, ...] = ("k",)) -> list[str]:
    """What does not fit, a line each."""
    with pytest.raises(UserError) as caught, sink(database, columns=columns, key=key):
        pass
    assert caught.value.condition is TABLE_UNFIT
    return [line.strip() for line in caught.value.message.splitlines()[1:]]


# Values


@pytest.mark.parametrize("type_", ["char(5)", "varchar(5)"])
@pytest.mark.parametrize("more", [0, MANY])
def test_a_text_that_is_too_long_is_refused_and_never_cut(database: Database, type_: str, more: int) -> None:
    database.execute(f"CREATE TABLE shop.items (id bigint PRIMARY KEY, name {type_}, score bigint)")
    rows = [(1, "abcde", 1, "i"), (2, "abcdef", 2, "i"), (3, "é日本🚀x", 3, "i"), (4, "ab", 4, "i"), (5, None, 5, "i")]
    with sink(database, ", on_error: skip") as made:
        report = write(made, [*rows, *((n, "x", n, "i") for n in range(10, 10 + more))])
    assert [(bad.reason, bad.row["id"]) for bad in report.bad_rows] == [("value_too_large", 2)]
    found = database.rows("SELECT id, name::text FROM shop.items WHERE id < 10 ORDER BY id")
    assert found == [(1, "abcde"), (3, "é日本🚀x"), (4, "ab"), (5, None)]


def test_blanks_at_the_end_are_kept_or_refused_where_they_count(database: Database) -> None:
    database.execute("CREATE TABLE shop.items (id bigint PRIMARY KEY, name varchar(5), score bigint)")
    with sink(database, ", on_error: skip") as made:
        report = write(made, [(1, "abc  ", 1, "i"), (2, "abc   ", 2, "i"), (3, "     ", 3, "i")])
    assert [bad.reason for bad in report.bad_rows] == ["value_too_large"]
    assert items(database, "id, name") == [(1, "abc  "), (3, "     ")]


@pytest.mark.parametrize(
    ("input_", "given"),
    [
        (STRING, "name"),
        (STRING, "bit(3)"),
        (STRING, "varbit"),
        (decimal(10, 2), "numeric(10,1)"),
        (decimal(10, 2), "numeric(9,2)"),
        (decimal(10, 2), "double precision"),
        (U256, "numeric(77,0)"),
        (FLOAT64, "real"),
        (FLOAT64, "numeric"),
        (FLOAT32, "numeric(30,10)"),
        (INT64, "double precision"),
        (INT64, "numeric(18,0)"),
        (TIMESTAMP, "timestamp(3)"),
        (TIMESTAMP, "timestamptz(0)"),
        (TIMESTAMP, "date"),
        (TIME64, "time(3)"),
    ],
)
def test_a_column_that_would_cut_or_round_is_refused_at_the_start(
    database: Database, input_: DataType, given: str
) -> None:
    database.execute(f"CREATE TABLE shop.items (id bigint PRIMARY KEY, v {given})")
    (line,) = refused(database, Schema((Field("id", INT64), Field("v", input_), OPERATION_FIELD)), ("id",))
    assert 'column "v" is ' in line


@pytest.mark.parametrize(
    ("type_", "given", "value"),
    [
        (UINT8, "smallint", 255),
        (UINT8, "numeric(3,0)", 255),
        (INT8, "numeric(3)", -128),
        (UINT16, "numeric(5)", 65535),
        (UINT32, "numeric(10)", 2**32 - 1),
    ],
)
def test_a_column_that_is_just_wide_enough_is_taken(
    database: Database, type_: DataType, given: str, value: int
) -> None:
    columns = Schema((Field("id", INT64), Field("v", type_), OPERATION_FIELD))
    database.execute(f"CREATE TABLE shop.items (id bigint PRIMARY KEY, v {given})")
    with sink(database, columns=columns) as made:
        write(made, [(1, value, "i")], columns=columns)
    assert items(database) == [(1, value)]


@pytest.mark.parametrize("more", [0, MANY])
def test_a_domain_is_the_type_it_is_made_of(database: Database, more: int) -> None:
    database.execute(
        "CREATE DOMAIN shop.plain AS bigint; CREATE DOMAIN shop.number AS shop.plain CHECK (VALUE > 0); "
        "CREATE DOMAIN shop.short AS varchar(3); CREATE DOMAIN shop.must AS integer NOT NULL DEFAULT 7; "
        "CREATE DOMAIN shop.unique AS uuid; "
        "CREATE TABLE shop.items (id shop.unique PRIMARY KEY, score shop.number, name shop.short, extra shop.must)"
    )
    columns = Schema((Field("id", STRING), Field("score", INT64), Field("name", STRING), OPERATION_FIELD))
    ids = [f"a0eebc99-9c0b-4ef8-bb6d-{n:012}" for n in range(4 + more)]
    rows = [
        (ids[0], 1, "abc", "i"),
        (ids[1], -1, "b", "i"),
        (ids[2], 1, "abcd", "i"),
        (ids[3], 1, "d", "i"),
        *((id_, 5, None, "i") for id_ in ids[4:]),
        (ids[3].upper(), None, None, "d"),
    ]
    with sink(database, ", on_error: skip", columns=columns) as made:
        report = write(made, rows, columns=columns)
    assert [bad.row["id"] for bad in report.bad_rows] == ids[1:3]
    assert database.rows("SELECT id::text, score, name, extra FROM shop.items ORDER BY 1")[0] == (ids[0], 1, "abc", 7)
    assert len(items(database)) == 1 + more


def test_a_domain_that_is_too_narrow_or_must_not_be_null_is_refused_at_the_start(database: Database) -> None:
    database.execute(
        "CREATE DOMAIN shop.narrow AS numeric(5,0); CREATE DOMAIN shop.must AS integer NOT NULL; "
        "CREATE TABLE shop.items (k bigint PRIMARY KEY, v shop.narrow, other shop.must)"
    )
    narrow, must = refused(database, keyed(INT64))
    assert 'column "v" is shop.narrow' in narrow
    assert 'column "other" is NOT NULL and has no default' in must


def test_a_type_may_have_any_name(database: Database) -> None:
    database.execute(
        """CREATE TYPE shop."100%s %(x)s" AS ENUM ('good', 'bad'); """
        """CREATE TABLE shop.items (k shop."100%s %(x)s" PRIMARY KEY, v bigint)"""
    )
    with sink(database, columns=keyed(STRING), key=("k",)) as made:
        write(made, [("good", 1, "i"), ("bad", 2, "i"), ("good", None, "d")], columns=keyed(STRING))
    assert items(database) == [("bad", 2)]


# Keys


def other_nan() -> float:
    (found,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))
    return float(found)


ONE = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
ALIKE: dict[str, tuple[DataType, str, list[Any]]] = {
    "zeros": (FLOAT64, "double precision", [0.0, -0.0]),
    "short zeros": (FLOAT32, "real", [-0.0, 0.0]),
    "no numbers": (FLOAT64, "double precision", [math.nan, other_nan()]),
    "no numbers as text": (FLOAT64, "text", [math.nan, other_nan()]),
    "uuid": (STRING, "uuid", [ONE, ONE.upper(), f"{{{ONE}}}", ONE.replace("-", "")]),
    "blanks": (STRING, "char(6)", ["ab", "ab ", "ab  "]),
    "blanks without end": (STRING, "bpchar", ["ab", "ab ", "ab  "]),
}


@pytest.mark.parametrize("more", ["", ", update_where: {v: '>'}"])
@pytest.mark.parametrize("name", ALIKE)
def test_keys_that_the_table_takes_for_one_are_one(database: Database, name: str, more: str) -> None:
    type_, given, keys = ALIKE[name]
    columns = keyed(type_)
    database.execute(f"CREATE TABLE shop.items (k {given} PRIMARY KEY, v bigint)")
    with sink(database, more, columns=columns, key=("k",)) as made:
        report = write(made, [(key, n, "i") for n, key in enumerate([*keys, keys[0], *keys])], columns=columns)
        assert (report.bad_rows, report.detail) == ((), 1)
        assert items(database, "v") == [(2 * len(keys),)]
        write(made, [(keys[-1], None, "d")], columns=columns)
        assert items(database, "v") == []


def test_keys_that_the_table_tells_apart_are_not_one(database: Database) -> None:
    columns = keyed(FLOAT64)
    database.execute("CREATE TABLE shop.items (k text PRIMARY KEY, v bigint)")
    with sink(database, columns=columns, key=("k",)) as made:
        write(made, [(0.0, 1, "i"), (-0.0, 2, "i")], columns=columns)
        write(made, [(0.0, None, "d")], columns=columns)
    assert items(database) == [("-0", 2)]


def test_what_is_no_uuid_is_refused_alone(database: Database) -> None:
    columns = keyed(STRING)
    database.execute("CREATE TABLE shop.items (k uuid PRIMARY KEY, v bigint)")
    with sink(database, ", on_error: skip", columns=columns, key=("k",)) as made:
        report = write(made, [(ONE, 1, "i"), (f"{{{ONE}", 2, "i"), (f"-{ONE}", 3, "d")], columns=columns)
    assert sorted(bad.row["v"] for bad in report.bad_rows) == [2, 3]
    assert items(database, "v") == [(1,)]


def _compared(name: str, operator: str) -> str:
    return (
        f"CREATE FUNCTION citext_{name}(citext, citext) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT "
        f"AS 'SELECT lower($1::text) {operator} lower($2::text)'; "
        f"CREATE OPERATOR {operator} (LEFTARG = citext, RIGHTARG = citext, FUNCTION = citext_{name}); "
    )


CITEXT = (
    "CREATE TYPE citext; "
    "CREATE FUNCTION citextin(cstring) RETURNS citext LANGUAGE internal IMMUTABLE STRICT AS 'textin'; "
    "CREATE FUNCTION citextout(citext) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout'; "
    "CREATE TYPE citext (INPUT = citextin, OUTPUT = citextout, LIKE = text, CATEGORY = 'S', COLLATABLE = true); "
    "CREATE CAST (citext AS text) WITHOUT FUNCTION AS IMPLICIT; "
    "CREATE CAST (text AS citext) WITHOUT FUNCTION AS ASSIGNMENT; "
    + "".join(_compared(*pair) for pair in (("eq", "="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")))
    + "CREATE FUNCTION citext_cmp(citext, citext) RETURNS integer LANGUAGE sql IMMUTABLE STRICT "
    "AS 'SELECT bttextcmp(lower($1::text), lower($2::text))'; "
    "CREATE OPERATOR CLASS citext_ops DEFAULT FOR TYPE citext USING btree AS OPERATOR 1 <, OPERATOR 2 <=, "
    "OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 citext_cmp(citext, citext)"
)
"""The type as its extension makes it, for servers that come without."""


@pytest.mark.parametrize("number", [3, MANY])
def test_keys_without_regard_to_case_are_one_as_the_database_sees_them(database: Database, number: int) -> None:
    there = database.rows("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'")
    database.execute("CREATE EXTENSION citext" if there else CITEXT)
    database.execute("CREATE TABLE shop.items (k citext PRIMARY KEY, v bigint)")
    columns = keyed(STRING)
    with sink(database, ", on_error: skip", columns=columns, key=("k",)) as made:
        rows = [(f"{'Éa' if n % 2 else 'éA'}{n // 3}", n, "i") for n in range(number)]
        assert write(made, rows, columns=columns).detail == number // 3
        assert sorted(items(database, "v")) == [(n,) for n in range(number) if n % 3 == 2]
        report = write(made, [("B", 1, "i"), ("B", 2, "i"), ("b", 3, "i"), ("b\0", 4, "i")], columns=columns)
        assert ([bad.row["v"] for bad in report.bad_rows], report.detail) == ([4], 1)
        assert database.rows("SELECT v FROM shop.items WHERE k = 'b'") == [(3,)]
        write(made, [(f"ÉA{n}", None, "d") for n in range(number)], columns=columns)
        assert items(database, "v") == [(3,)]


def test_a_column_that_takes_different_texts_for_one_is_no_key(database: Database) -> None:
    for given in ("inet", "cidr", "macaddr", "jsonb"):
        database.execute(f"DROP TABLE IF EXISTS shop.items; CREATE TABLE shop.items (k {given} PRIMARY KEY, v bigint)")
        (line,) = refused(database, keyed(STRING))
        assert f'column "k" is {given}, for which different texts are equal' in line
    database.execute(
        "CREATE TYPE shop.mood AS ENUM ('good', 'bad'); DROP TABLE shop.items; "
        "CREATE TABLE shop.items (k shop.mood PRIMARY KEY, v bigint)"
    )
    with sink(database, columns=keyed(STRING), key=("k",)) as made:
        write(made, [("good", 1, "i"), ("bad", 2, "i"), ("good", None, "d")], columns=keyed(STRING))
    assert items(database) == [("bad", 2)]


def test_a_collation_that_takes_different_texts_for_one_is_refused_for_a_key(database: Database) -> None:
    # Only ICU has such collations, and not every server has ICU: the catalogue is told so.
    database.execute(
        "CREATE COLLATION shop.loose (provider = libc, locale = 'C'); "
        "UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose'; "
        "CREATE TABLE shop.items (k text COLLATE shop.loose PRIMARY KEY, v bigint)"
    )
    assert refused(database, keyed(STRING)) == [
        '- column "k" has a collation for which different texts are equal, and cannot be a key'
    ]
    database.execute(
        "DROP TABLE shop.items; CREATE TABLE shop.items (k text, v bigint); "
        "CREATE UNIQUE INDEX ON shop.items (k COLLATE shop.loose)"
    )
    (line,) = refused(database, keyed(STRING))
    assert "no unique or exclusion constraint" in line


def test_a_constraint_that_may_be_checked_later_does_not_tell_keys_apart(database: Database) -> None:
    database.execute("CREATE TABLE shop.items (k bigint UNIQUE DEFERRABLE, v bigint)")
    (line,) = refused(database, keyed(INT64))
    assert "no unique or exclusion constraint" in line
    database.execute("ALTER TABLE shop.items ADD UNIQUE (k)")
    with sink(database, columns=keyed(INT64), key=("k",)):
        pass


def test_a_list_is_no_key_in_a_given_table(database: Database) -> None:
    database.execute("CREATE TABLE shop.items (k jsonb PRIMARY KEY, v bigint)")
    assert refused(database, keyed(list_of(INT64))) == ['- column "k" is list<int64>, which cannot be a key']


@pytest.mark.parametrize("given", ["text", "varchar(80)"])
@pytest.mark.parametrize(
    ("type_", "keys"),
    [
        (INT64, [1, -2, 3]),
        (BOOLEAN, [True, False]),
        (DATE, [date(2024, 2, 29), date(1, 1, 1)]),
        (decimal(10, 2), [Decimal("1.50"), Decimal("-0.01")]),
        (U256, ["115792089237316195423570985008687907853269984665640564039457584007913129639935", "0"]),
        (FLOAT64, [0.1, 1e300, -0.0]),
    ],
)
def test_a_key_of_any_type_finds_its_row_in_a_text_column(
    database: Database, given: str, type_: DataType, keys: list[Any]
) -> None:
    columns = keyed(type_)
    database.execute(f"CREATE TABLE shop.items (k {given} PRIMARY KEY, v bigint)")
    with sink(database, columns=columns, key=("k",)) as made:
        write(made, [(key, n, "i") for n, key in enumerate(keys)], columns=columns)
        write(made, [(key, n + 10, "u") for n, key in enumerate(keys)], columns=columns)
        assert sorted(items(database, "v")) == [(n + 10,) for n in range(len(keys))]
        write(made, [(key, None, "d") for key in keys[1:]], columns=columns)
        assert items(database, "v") == [(10,)]


@pytest.mark.parametrize("more", [0, MANY])
def test_a_key_too_long_for_an_index_is_a_refused_row(database: Database, more: int) -> None:
    import random

    columns = keyed(STRING)
    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=20_000))
    with sink(database, ", on_error: skip", columns=columns, key=("k",)) as made:
        rows = [("a", 1, "i"), (long, 2, "i"), ("b", 3, "i"), *((f"n{n}", n, "i") for n in range(more))]
        report = write(made, rows, columns=columns)
    assert [bad.reason for bad in report.bad_rows] == ["value_too_large"]
    assert "54000" in report.bad_rows[0].message
    assert len(items(database)) == 2 + more


def test_rows_that_only_the_table_takes_for_one_key_are_written_one_after_the_other(database: Database) -> None:
    database.execute(
        "CREATE TABLE shop.items (id bigint PRIMARY KEY, name text, score bigint); "
        "CREATE FUNCTION shop.tens() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.id := NEW.id / 10; RETURN NEW; END'; "
        "CREATE TRIGGER tens BEFORE INSERT ON shop.items FOR EACH ROW EXECUTE FUNCTION shop.tens()"
    )
    with sink(database) as made:
        report = write(made, [(11, "a", 1, "i"), (12, "b", 2, "i"), (21, "c", 3, "i"), (13, "d", 4, "i")])
    assert report.bad_rows == ()
    assert items(database) == [(1, "d", 4), (2, "c", 3)]


def test_a_row_that_was_deleted_and_comes_back_within_a_piece_is_a_new_one(database: Database) -> None:
    database.execute(
        "CREATE TABLE shop.items (id bigint PRIMARY KEY, name text, score bigint, n text DEFAULT 'new'); "
        "INSERT INTO shop.items VALUES (1, 'a', 9, 'touched'), (2, 'b', 9, 'touched')"
    )
    for more in ("", ", update_where: {score: '>'}"):
        with sink(database, more) as made:
            write(made, [(1, None, None, "d"), (1, "x", 1, "i"), (1, "c", 3, "u"), (2, "d", 10, "u")])
        assert items(database) == [(1, "c", 3, "new"), (2, "d", 10, "touched")]
        database.execute("UPDATE shop.items SET n = 'touched', score = 9")


# Encodings


@pytest.mark.parametrize("more", [0, MANY])
def test_characters_that_a_database_does_not_have_are_refused_with_their_row(
    postgres: PostgresServer, more: int
) -> None:
    database = postgres.database("LATIN1")
    with sink(database, ", on_error: skip") as made:
        rows = [(1, "é", 1, "i"), (2, "日本", 2, "i"), (3, "ÿ", 3, "i")]
        report = write(made, [*rows, *((n, "ü", n, "i") for n in range(10, 10 + more))])
    assert [(bad.reason, bad.row["id"]) for bad in report.bad_rows] == [("type_mismatch", 2)]
    assert "22P05" in report.bad_rows[0].message
    assert items(database)[:2] == [(1, "é", 1), (3, "ÿ", 3)]
    assert database.rows("SELECT count(*), max(length(name)) FROM shop.items") == [(2 + more, 1)]


@pytest.mark.parametrize("more", [0, MANY])
def test_a_database_that_knows_no_characters_keeps_their_bytes(postgres: PostgresServer, more: int) -> None:
    database = postgres.database("SQL_ASCII")
    columns = Schema((*ITEMS.fields[:-1], Field("größe", STRING), OPERATION_FIELD))
    with sink(database, columns=columns) as made:
        rows = [(1, "é日本🚀", 1, "ß", "i"), *((n, "ü", n, "ß", "i") for n in range(10, 10 + more))]
        write(made, rows, columns=columns)
    assert items(database)[0] == (1, "é日本🚀", 1, "ß")
    assert database.rows("SELECT count(*) FROM shop.items") == [(1 + more,)]
