"""Joins of a stream with lookups: what is accepted, and what becomes of it. Runs are in `pipelines/test_lookups.py`."""

from __future__ import annotations

import pytest

from streamling.errors import InvalidPipeline, StreamlingError
from streamling.plan.sql import LookupTable, Query, compile_query, parse
from streamling.plan.types import FLOAT64, INT32, INT64, OPERATION_FIELD, STRING, TIMESTAMP, DataType, Field, Schema
from support.sql_samples import in_file


def columns(**types: DataType) -> tuple[Field, ...]:
    return tuple(Field(name, type_) for name, type_ in types.items())


ORDERS = Schema((*columns(id=INT64, user=INT64, name=STRING, price=FLOAT64, at=TIMESTAMP), OPERATION_FIELD))
LOOKUPS = {
    "users": LookupTable(Schema(columns(id=INT32, name=STRING, country=STRING)), ("id",), "node_1"),
    "geo.countries": LookupTable(Schema(columns(code=STRING, title=STRING)), ("code",), "node_2"),
    "rates": LookupTable(Schema(columns(currency=STRING, day=TIMESTAMP, rate=FLOAT64)), ("currency", "day"), "node_3"),
}


def compiled(sql: str, deletes: tuple[str, ...] | None = None) -> Query:
    statement = parse(sql, node="n", locate=in_file, lookups=LOOKUPS)
    return compile_query(statement, {"orders": ORDERS}, {"orders": "node_0"}, lookups=LOOKUPS, deletes=deletes)


def problem(sql: str) -> StreamlingError:
    with pytest.raises(StreamlingError) as caught:
        compiled(sql)
    error = caught.value
    return error.problems[0] if isinstance(error, InvalidPipeline) else error


def test_a_left_join_keeps_every_row_and_its_columns() -> None:
    query = compiled("SELECT o.id, u.name FROM orders o LEFT JOIN users u ON o.user = u.id")
    assert query.text == (
        "SELECT `id`, `#1.name` AS `name`, `_gs_op` FROM (SELECT * FROM `node_0` LEFT JOIN (SELECT `id` AS `#1.id`, "
        "`name` AS `#1.name`, `country` AS `#1.country` FROM `node_1`) ON (`user` = CAST(`#1.id` AS BIGINT)))"
    )
    assert [f.name for f in query.schema] == ["id", "name", "_gs_op"]
    assert query.reads == {"orders": frozenset({"id", "user", "_gs_op"})}


def test_an_inner_join_is_a_condition() -> None:
    query = compiled("SELECT o.id FROM orders o INNER JOIN users u ON o.user = u.id WHERE u.country = 'de' OR o.id = 1")
    assert query.text.endswith("WHERE `#1.id` IS NOT NULL AND ((`#1.country` = 'de') OR (`id` = 1L))")
    deleting = compiled("SELECT o.id, u.name FROM orders o JOIN users u ON o.user = u.id", deletes=("id",))
    assert "coalesce(`#1.id` IS NOT NULL, false)" in deleting.text
    assert "ELSE 'd' END AS `_gs_op`" in deleting.text


@pytest.mark.parametrize(
    ("join", "keys"),
    [
        ("JOIN geo.countries c ON o.name = c.code", {"code": "name"}),
        ("JOIN geo.countries ON ((countries.code) = name) AND title > 'a'", {"code": "name"}),
        ("JOIN geo.countries c ON upper(name) = c.code", {"code": None}),
        ("JOIN rates ON currency = name AND rates.day = date_trunc('day', at)", {"currency": "name", "day": None}),
        ("JOIN rates ON currency = 'EUR' AND day = at AND rate > price", {"currency": None, "day": "at"}),
        ("JOIN users u ON u.id = user", {"id": None}),
    ],
)
def test_the_keys_that_a_small_epoch_has_are_known(join: str, keys: dict[str, str | None]) -> None:
    """Only if both types are the same: then values can be compared outside of Spark."""
    (found,) = compiled(f"SELECT o.id FROM orders o {join}").joins
    assert (found.stream, dict(found.keys)) == ("orders", keys)


def test_a_lookup_may_be_joined_twice_and_by_the_columns_of_another() -> None:
    query = compiled(
        "WITH named AS (SELECT o.id, a.name, a.country, b.name AS other FROM orders o "
        "LEFT JOIN users a ON o.user = a.id LEFT JOIN users b ON o.id = b.id) "
        "SELECT n.*, c.title FROM named n LEFT JOIN geo.countries c ON n.country = c.code"
    )
    assert [f.name for f in query.schema] == ["id", "name", "country", "other", "_gs_op", "title"]
    assert [(join.lookup, join.stream) for join in query.joins] == [
        ("users", "orders"),
        ("users", "orders"),
        ("geo.countries", None),
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT o.id FROM orders o JOIN users USING (id)", "JOIN .. USING with the lookup 'users'"),
        ("SELECT o.id FROM orders o NATURAL JOIN users", "NATURAL JOIN with the lookup 'users'"),
        ("SELECT o.id FROM orders o FULL JOIN users u ON o.user = u.id", "FULL JOIN with the lookup 'users'"),
        ("SELECT o.id FROM orders o LEFT SEMI JOIN users u ON o.user = u.id", "LEFT SEMI JOIN with the lookup"),
        ("SELECT o.id FROM orders o CROSS JOIN users u", "CROSS JOIN with the lookup"),
        ("SELECT o.id FROM orders o, users u", "several items in FROM with the lookup"),
        ("SELECT o.id FROM orders o JOIN (SELECT * FROM users) u ON o.user = u.id", "unsupported SQL: JOIN"),
        ("SELECT o.id FROM (orders o JOIN users u ON o.user = u.id)", "unsupported SQL: JOIN"),
        ("SELECT u.id FROM users u", "the lookup 'users' in FROM"),
        ("SELECT id FROM orders UNION ALL SELECT id FROM users", "the lookup 'users' in FROM"),
        (
            "WITH users AS (SELECT * FROM orders) SELECT o.id FROM orders o JOIN users u ON o.id = u.id",
            "unsupported SQL: JOIN",
        ),
        ("SELECT o.id FROM orders o JOIN users u ON o.user = u.id OR o.id = 1", "must compare its whole primary key"),
        ("SELECT o.id FROM orders o JOIN users u ON u.id = u.id", "must compare its whole primary key"),
        ("SELECT o.id FROM orders o JOIN users u ON o.user = u.id + 1", "must compare its whole primary key"),
        ("SELECT o.id FROM orders o JOIN rates r ON o.name = r.currency", "missing: day"),
        ("SELECT o.id FROM orders o JOIN users u ON o.price = u.id", "is int32 and is compared with float64"),
        ("SELECT o.id FROM orders o JOIN users u ON o.user = u.id AND random() > 0.5", "cannot call `random`"),
        ("SELECT o.id FROM orders o JOIN users o ON user = 1", "two tables of the query are named `o`"),
        ("SELECT name FROM orders o JOIN users u ON o.user = u.id", "several tables have a column `name`"),
        ("SELECT * FROM orders o JOIN users u ON o.user = u.id", "two columns are named `id`"),
        ("SELECT u.nam FROM orders o JOIN users u ON o.user = u.id", "No field named u.nam. Did you mean name?"),
        ("SELECT o.country FROM orders o JOIN users u ON o.user = u.id", "No field named o.country."),
        ("SELECT x.* FROM orders o JOIN users u ON o.user = u.id", "does not read a table named `x`"),
        ("SELECT o.id FROM orders o JOIN users u ON sum(o.user) = u.id", "aggregate function `sum`"),
    ],
)
def test_other_joins_are_refused(sql: str, message: str) -> None:
    found = problem(sql)
    assert message in found.message
    assert found.where is not None


def test_a_misspelt_lookup_is_suggested() -> None:
    hint = problem("SELECT o.id FROM orders o JOIN user u ON o.user = u.id").hint
    assert hint == "did you mean the lookup 'users'?"
