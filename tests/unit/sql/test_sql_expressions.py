"""Expressions: the Spark text, the type, what is refused."""

from __future__ import annotations

import pytest

from streamling.errors import UserError
from streamling.plan.sql import Expression, compile_expression
from streamling.plan.types import INT64, U256, Field, Schema, decimal, decimal_arb
from support.sql_samples import ORDERS, spark, type_of

TEXTS = {
    # literals
    "1": "1L",
    "-1": "(-1L)",
    "-9223372036854775808": "(-9223372036854775808L)",
    "9223372036854775808": "9223372036854775808BD",
    "1.50": "1.5D",
    "1e3": "1000.0D",
    "'it''s'": "'it\\'s'",
    r"'\d+'": r"'\\d+'",
    "'a\nb'": "'a\\nb'",
    "'é😀'": "'é😀'",
    "'${env:HOME} $x'": "'\\u0024{env:HOME} $x'",
    "NULL": "NULL",
    "true": "true",
    # arithmetic
    "qty + 1": "(`qty` + 1L)",
    "qty / 2": "(`qty` div 2L)",
    "qty / qty": "CAST((`qty` div `qty`) AS INT)",
    "qty % 2": "(`qty` % 2L)",
    "rate / 2": "(`rate` / 2D)",
    "rate / id": (
        "coalesce(try_divide(`rate`, CAST(`id` AS DOUBLE)), `rate` * power(CAST(`id` AS DOUBLE), -1D))"
    ),
    "price * 2": "(`price` * CAST(2L AS DECIMAL(20,0)))",
    "price + rate": "(CAST(`price` AS DOUBLE) + `rate`)",
    "- qty": "(- `qty`)",
    "id + 1 - 2": "((`id` + 1L) - 2L)",
    "id * (1 + 2)": "(`id` * (1L + 2L))",
    # comparison
    "qty = 1": "(CAST(`qty` AS BIGINT) = 1L)",
    "id <> 1": "(`id` <> 1L)",
    "id = '1'": "(`id` = CAST('1' AS BIGINT))",
    "name > 5": "(CAST(`name` AS BIGINT) > 5L)",
    "price > 0": "(CAST(`price` AS DECIMAL(22,2)) > CAST(0L AS DECIMAL(22,2)))",
    "at > seen": "(CAST(`at` AS TIMESTAMP) > `seen`)",
    "at > '2024-01-01'": "(`at` > CAST(CAST('2024-01-01' AS TIMESTAMP) AS TIMESTAMP_NTZ))",
    "day = '2024-01-01'": "(`day` = CAST('2024-01-01' AS DATE))",
    "id IS DISTINCT FROM 1": "(NOT (`id` <=> 1L))",
    "id IS NOT DISTINCT FROM 1": "(`id` <=> 1L)",
    "name IS NULL": "(`name` IS NULL)",
    "name IS NOT NULL": "(`name` IS NOT NULL)",
    "paid IS TRUE": "(`paid` IS TRUE)",
    "paid IS NOT FALSE": "(NOT (`paid` IS FALSE))",
    "id BETWEEN 1 AND 2": "((`id` >= 1L) AND (`id` <= 2L))",
    "id NOT IN (1, 2)": "(NOT (`id` IN (1L, 2L)))",
    "paid AND id = 1 AND NOT paid": "(`paid` AND (`id` = 1L) AND (NOT `paid`))",
    "paid AND (paid OR paid)": "(`paid` AND (`paid` OR `paid`))",
    # text
    "name || '-' || id": "concat(`name`, '-', CAST(`id` AS STRING))",
    r"name LIKE 'a\b\%\\'": r"(`name` LIKE 'ab\\%\\\\')",
    "name NOT ILIKE 'a%'": "(NOT (`name` ILIKE 'a%'))",
    "name LIKE '10!%' ESCAPE '!'": r"(`name` LIKE '10\\%')",
    r"name ~ '^\d+$'": r"rlike(`name`, '(?U)^\\d+\\z')",
    "name !~* 'a.b'": "(NOT rlike(`name`, '(?idU)a.b'))",
    # choice
    "CASE id WHEN 1 THEN 'a' END": "CASE `id` WHEN 1L THEN 'a' ELSE CAST(NULL AS STRING) END",
    "CASE WHEN paid THEN qty ELSE 1 END": "CASE WHEN `paid` THEN CAST(`qty` AS BIGINT) ELSE 1L END",
    # casts
    "id::int": "CAST(`id` AS INT)",
    "try_cast(name AS int)": "try_cast(`name` AS INT)",
    "try_cast('x' AS date)": "try_cast('x' AS DATE)",
    "name::timestamptz": "CAST(`name` AS TIMESTAMP)",
    "name::bytea": "CAST(`name` AS BINARY)",
    "name::bytea::text": "validate_utf8(CAST(CAST(`name` AS BINARY) AS STRING))",
    "id::bigint": "`id`",
    # access
    "tags[1]": "try_element_at(`tags`, 1)",
    "tags[-1]": "try_element_at(`tags`, -1)",
    "tags[0]": "CAST(NULL AS STRING)",
    "tags[id]": "try_element_at(`tags`, nullif(try_cast(`id` AS INT), 0))",
    "address.city": "`address`['city']",
    "address['Zip']": "`address`['Zip']",
    "attributes['k']": "try_element_at(`attributes`, 'k')",
    "[1, qty]": "array(1L, CAST(`qty` AS BIGINT))",
    # time
    "now()": ":epoch_now",
    "current_timestamp": ":epoch_now",
    "current_date": "CAST(:epoch_now AS DATE)",
    "at - interval '1 hour'": "(`at` - INTERVAL '0 01:00:00.000000' DAY TO SECOND)",
    "at + interval '1 month 2 days'": (
        "((`at` + INTERVAL '1' MONTH) + INTERVAL '2 00:00:00.000000' DAY TO SECOND)"
    ),
    "interval '5' minute + at": "(`at` + INTERVAL '0 00:05:00.000000' DAY TO SECOND)",
    "day + interval '1 week'": "date_add(`day`, 7)",
    "day - interval '1 year'": "add_months(`day`, -12)",
    "day + interval '1 hour'": "(CAST(`day` AS TIMESTAMP_NTZ) + INTERVAL '0 01:00:00.000000' DAY TO SECOND)",
    "seen - at": "(`seen` - CAST(`at` AS TIMESTAMP))",
    # calls with a syntax of their own
    "extract(year FROM at)": "year(`at`)",
    "position('x' IN name)": "instr(`name`, 'x')",
    "substring(name FROM 2 FOR 3)": "substring(`name`, 2, 3)",
    "trim(LEADING 'x' FROM name)": "trim(LEADING 'x' FROM `name`)",
    "UPPER(name)": "upper(`name`)",
}  # fmt: skip

TYPES = {
    "1": "int64",
    "1.5": "float64",
    "99999999999999999999": "decimal(20,0)",
    "qty + qty": "int32",
    "qty + 1": "int64",
    "qty / 2.0": "float64",
    "small + small": "float32",
    "small / small": "float64",
    "small + qty": "float64",
    "price + price": "decimal(11,2)",
    "price * price": "decimal(21,4)",
    "price / price": "decimal(23,13)",
    "price % 3": "decimal(10,2)",
    "price * 2": "decimal(31,2)",
    "price + 1.5": "float64",
    "1 + NULL": "int64",
    "at - at": "duration",
    "day - day": "int64",
    "day + interval '1 day'": "date32",
    "day + interval '1 hour'": "timestamp",
    "seen + interval '1 day'": "timestamp(UTC)",
    "CASE WHEN paid THEN 1 ELSE 'x' END": "string",
    "CASE WHEN paid THEN price ELSE 0 END": "decimal(22,2)",
    "coalesce(qty, '0')": "int32",
    "coalesce(NULL, day, at)": "timestamp",
    "'1'::decimal": "decimal(38,10)",
    "'1'::numeric(5)": "decimal(5,0)",
    "'1'::float": "float32",
    "'1'::double precision": "float64",
    "'1'::varchar(10)": "string",
    "name::timestamp": "timestamp",
    "make_array(1, NULL)": "list<int64>",
    "named_struct('a', 1)": "struct<a: int64>",
    "date_part('epoch', at)": "float64",
    "sha256(name)": "binary",
    "length(name)": "int32",
    "round(price, 1)": "decimal(10,1)",
    "ceil(qty)": "float64",
    "now()": "timestamp(UTC)",
}

NEVER_NULL = ["id", "id + 1", "id IS NULL", "coalesce(qty, 0)", "concat(name, id)", "CASE WHEN paid THEN 1 ELSE 2 END",
              "id IS DISTINCT FROM qty", "now()", "[qty]"]  # fmt: skip
MAYBE_NULL = ["qty", "qty + 1", "id = qty", "coalesce(qty, NULL)", "CASE WHEN paid THEN 1 END", "tags[1]",
              "try_cast('1' AS int)", "nullif(id, 1)", "name || 'x'"]  # fmt: skip

REFUSED = {
    "name + 1": "operator `+` does not accept string and int64",
    "paid + 1": "operator `+` does not accept boolean and int64",
    "- name": "operator `-` does not accept string",
    "paid = 1": "types boolean and int64 are not compatible",
    "paid = 'true'": "types boolean and string are not compatible",
    "tags = 1": "types list<string> and int64 are not compatible",
    "attributes = attributes": "maps cannot be compared",
    "id AND paid": "a condition must be boolean, but this one is int64",
    "NOT name": "a condition must be boolean, but this one is string",
    "CASE WHEN id THEN 1 END": "a condition must be boolean, but this one is int64",
    "id || id": "operator `||` does not accept int64 and int64",
    "id LIKE 'x'": "operator `LIKE` expects text, got int64",
    "name LIKE 'x\\'": "the LIKE pattern 'x\\' ends with its escape character",
    "at::bigint": "there is no cast from timestamp to int64",
    "id::timestamp": "there is no cast from int64 to timestamp",
    "paid::date": "there is no cast from boolean to date32",
    "'2024'::date": "'2024' is not a valid date32",
    "at > '12:30'": "'12:30' is not a valid timestamp",
    "name.city": "a value of type string has no field `city`",
    "tags['x']": "a position in a list must be an integer, got string",
    "id[1]": "a value of type int64 has no element [1]",
    "interval '5'": "'5' is not a valid interval",
    "interval '1 parsec'": "`parsec` in the interval '1 parsec' is not a unit of time",
    "interval '0.3 months'": "the interval '0.3 months' has a fraction of a month or of a microsecond",
    "1e400": "the number 1e400 is too large for float64",
    "upper(id)": "argument 1 of `upper(text)`: expected text, got int64",
    "upper()": "wrong number of arguments for `upper(text)`: 0",
    "substr(name)": "wrong number of arguments for `substr(text, start[, length])`: 1",
    "now(1)": "wrong number of arguments for `now()`: 1",
    "date_trunc('eon', at)": "'eon' is not a valid unit; accepted: year, quarter, month, week, day, hour, minute, "
    "second, millisecond, microsecond",
    "date_trunc(name, at)": "argument 1 of `date_trunc(unit, time)`: expected a text literal",
    "regexp_like(name, 'x', 'g')": "'g' has flags other than i, m, s",
    "keccak()": "function `keccak` is not supported yet",
}


@pytest.mark.parametrize("sql", TEXTS)
def test_text(sql: str) -> None:
    assert spark(sql) == TEXTS[sql]


@pytest.mark.parametrize("sql", TYPES)
def test_type(sql: str) -> None:
    assert type_of(sql) == TYPES[sql]


@pytest.mark.parametrize("sql", NEVER_NULL)
def test_never_null(sql: str) -> None:
    assert not compile_expression(sql, ORDERS, node="n").nullable


@pytest.mark.parametrize("sql", MAYBE_NULL)
def test_maybe_null(sql: str) -> None:
    assert compile_expression(sql, ORDERS, node="n").nullable


@pytest.mark.parametrize("sql", REFUSED)
def test_refused(sql: str) -> None:
    with pytest.raises(UserError) as caught:
        compile_expression(sql, ORDERS, node="n")
    assert caught.value.message.startswith(REFUSED[sql])


@pytest.mark.parametrize("sql", ["id = 1 x", "id AS x", "SELECT 1", "id, qty", "(id"])
def test_an_expression_is_one_expression(sql: str) -> None:
    with pytest.raises(UserError) as caught:
        compile_expression(sql, ORDERS, node="n")
    assert caught.value.code == "SQL_SYNTAX"


WIDE_TYPES = {
    "coalesce(a, 0)": "decimal_arb(100,18)",
    "coalesce(w, 12345678901)": "decimal(60,30)",
    "coalesce(few, 12345678901)": "decimal(61,50)",
    "coalesce(few, i)": "decimal(69,50)",
    "coalesce(few, p)": "decimal_arb(86,50)",
    "coalesce(w, a)": "decimal_arb(112,30)",
    "coalesce(u, w)": "decimal_arb(108,30)",
    "coalesce(w, '1.5')": "decimal(60,30)",
    "CASE WHEN w > 0 THEN w ELSE p END": "decimal(66,30)",
    "CASE WHEN w > 0 THEN w ELSE 'none' END": "string",
    "p::decimal(76,2)": "decimal(76,2)",
    "p::decimal(77,2)": "decimal_arb(77,2)",
    "a::decimal(38,2)": "decimal(38,2)",
    "a::bigint": "int64",
    "nullif(a, 0)": "decimal_arb(100,18)",
}
WIDE_REFUSED = {
    "a > 1.5": "float64 is not compatible with a number of more than 38 digits",
    "a IN (1, 2.5)": "float64 is not compatible with a number of more than 38 digits",
    "a BETWEEN 0 AND 1e3": "float64 is not compatible with a number of more than 38 digits",
    "CASE a WHEN 1.5 THEN 1 END": "float64 is not compatible with a number of more than 38 digits",
    "coalesce(a, 1.5)": "types decimal_arb(100,18) and float64 are not compatible",
    "a = 'much'": "'much' is not a number",
    "coalesce(a, '1e3')": "'1e3' is not a valid decimal_arb(100,18)",
    "coalesce(u, '1.5')": "'1.5' is not a valid u256",
    "1.5::decimal(60,2)": "there is no cast from float64 to decimal(60,2)",
    "100::decimal(60,58)": "100 is out of the range of decimal(60,58)",
    "a::date": "there is no cast from decimal_arb(100,18) to date32",
    "huge = tiny OR coalesce(huge, tiny) = 0": "types decimal_arb(65535,0) and decimal_arb(65535,65535)",
}


def _wide(sql: str) -> Expression:
    columns = {
        "a": decimal_arb(100, 18),
        "w": decimal(60, 30),
        "few": decimal(60, 50),
        "u": U256,
        "p": decimal(38, 2),
        "i": INT64,
        "huge": decimal_arb(65_535, 0),
        "tiny": decimal_arb(65_535, 65_535),
    }
    schema = Schema(tuple(Field(name, type_) for name, type_ in columns.items()))
    return compile_expression(sql, schema, node="n")


@pytest.mark.parametrize("sql", WIDE_TYPES)
def test_wide_numbers_go_together_in_a_type_that_has_room_for_both(sql: str) -> None:
    assert str(_wide(sql).type) == WIDE_TYPES[sql]


@pytest.mark.parametrize("sql", WIDE_REFUSED)
def test_what_wide_numbers_do_not_go_together_with(sql: str) -> None:
    with pytest.raises(UserError) as caught:
        _wide(sql)
    assert caught.value.message.startswith(WIDE_REFUSED[sql])


def test_a_literal_longer_than_any_integer_of_python_is_refused_like_others() -> None:
    with pytest.raises(UserError, match="has more than 38 digits") as caught:
        _wide(f"huge > {'9' * 5000}")
    assert caught.value.where is not None or caught.value.quote is not None
    assert _wide(f"huge > {'0' * 5000}1").text == _wide("huge > 1").text
    assert _wide(f"huge > '{'9' * 5000}'").text.count("9" * 5000) == 1


def test_a_float_beside_a_wide_number_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(UserError) as caught:
        _wide("a > 1.5")
    assert caught.value.hint == "write a number with decimal places as text: '1.5'"


def test_a_wide_number_can_be_passed_on_and_compared_but_not_computed_with() -> None:
    wide = Schema((Field("w", decimal(60, 0)), Field("u", U256)))
    assert compile_expression("w", wide, node="n").text == "`w`"
    assert compile_expression("coalesce(u, 0)", wide, node="n").type == U256
    assert str(compile_expression("CASE WHEN w > u THEN w ELSE u END", wide, node="n").type) == "decimal_arb(78,0)"
    for sql in ("w + 1", "- w", "u * u", "abs(w)", "greatest(w, 1)", "w > 1.5", "coalesce(u, -1)", "w::date", "u || u"):
        with pytest.raises(UserError):
            compile_expression(sql, wide, node="n")


@pytest.mark.parametrize("call", ["json_unquote({})", "json_value({}, '$.a')", "u256_to_string(to_u256({}))",
                                  "_gs_conv_base({}, 10, 16)", "json_array({})"])  # fmt: skip
def test_calls_inside_of_calls_do_not_grow_without_bound(call: str) -> None:
    nested = "name"
    lengths = []
    for _ in range(6):
        nested = call.format(nested)
        lengths.append(len(spark(nested)))
    assert lengths[5] - lengths[4] <= lengths[4] - lengths[3] + 50
