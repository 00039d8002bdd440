"""The ClickHouse source: ranges hold each row of a table once, wherever they are cut and whatever the key is."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from streamling.clients.clickhouse import QueryTimeout
from streamling.connector import BadRow, Room
from streamling.errors import PermanentError, StreamlingError, TransientError
from streamling.sources.clickhouse.source import ClickHouseSource
from support.clickhouse_samples import KEY, PLENTY, everything, read_slice, source, spoiling_proxy, steps
from support.clickhouse_server import READER, READER_PASSWORD, ClickHouseServer

pytestmark = pytest.mark.servers

UUID = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
NOON = dt.datetime.fromisoformat("2020-01-02T03:04:05")
BIGGEST = 2**256 - 1
# ClickHouse type, SQL of a value, and what arrives.
VALUES: dict[str, tuple[str, str, Any]] = {
    "bool": ("Bool", "true", True),
    "i8": ("Int8", "-128", -128),
    "u8": ("UInt8", "255", 255),
    "u32": ("UInt32", "4294967295", 4294967295),
    "u64": ("UInt64", "18446744073709551615", Decimal(18446744073709551615)),
    "i128": ("Int128", f"'{-(2**127)}'", str(-(2**127))),
    "u256": ("Nullable(UInt256)", f"'{BIGGEST}'", str(BIGGEST)),
    "none": ("Nullable(UInt256)", "NULL", None),
    "f32": ("Float32", "1.5", 1.5),
    "text": ("String", "'é\\0\\n'", "é\0\n"),
    "fixed": ("FixedString(3)", "'ab'", b"ab\0"),
    "low": ("LowCardinality(Nullable(String))", "'low'", "low"),
    "uuid": ("UUID", f"'{UUID}'", UUID),
    "four": ("IPv4", "'1.2.3.4'", "1.2.3.4"),
    "six": ("IPv6", "'::1'", "::1"),
    "enum": ("Enum('it''s, (odd)' = 1, 'b' = 2)", "1", "it's, (odd)"),
    "day": ("Date", "'2020-01-02'", dt.date(2020, 1, 2)),
    "far": ("Date32", "'1950-01-02'", dt.date(1950, 1, 2)),
    "second": ("DateTime", "'2020-01-02 03:04:05'", NOON),
    "berlin": (
        "DateTime('Europe/Berlin')",
        "'2020-01-02 03:04:05'",
        NOON.replace(tzinfo=ZoneInfo("Europe/Berlin")),
    ),
    "nano": ("DateTime64(9)", "'2020-01-02 03:04:05.123456789'", NOON.replace(microsecond=123456)),
    "money": ("Decimal(20, 5)", "'-1.5'", Decimal("-1.50000")),
    "wide": ("Decimal(50, 3)", "'-1.5'", "-1.500"),
    "zero": ("Decimal(50, 3)", "'0'", "0"),
    "lists": ("Array(Array(Nullable(Int8)))", "[[1, NULL], []]", [[1, None], []]),
    "pair": ("Tuple(a Int8, `b c` Nullable(String))", "(1, NULL)", {"a": 1, "b c": None}),
    "unnamed": ("Tuple(Int8, UInt256)", "(2, 3)", {"1": 2, "2": "3"}),
    "map": ("Map(String, UInt64)", "map('a', 1)", [("a", Decimal(1))]),
    "wide_list": ("Array(UInt256)", "[1, 2]", ["1", "2"]),
    "deep": ("Array(Tuple(x UUID, y Date))", f"[('{UUID}', '2020-01-02')]", [{"x": UUID, "y": dt.date(2020, 1, 2)}]),
}


@pytest.fixture
def database(clickhouse: ClickHouseServer) -> str:
    return clickhouse.database()


@pytest.fixture
def table(clickhouse: ClickHouseServer, database: str) -> Callable[..., str]:
    """Creates a table `t` and inserts what the queries give, each in an insert of its own that stays apart."""

    def create(columns: str, engine: str, *inserts: str) -> str:
        name = f"{database}.t"
        clickhouse.execute(f"CREATE OR REPLACE TABLE {name} ({columns}) ENGINE = {engine}")
        clickhouse.execute(f"SYSTEM STOP MERGES {name}")
        for insert in inserts:
            clickhouse.execute(f"INSERT INTO {name} {insert}", optimize_on_insert=0)
        return name

    return create


Create = Callable[..., str]


def ids(rows: list[Any]) -> list[int]:
    return [int(row["id"]) for row in rows]


# Values


def test_every_type_arrives_with_its_value(clickhouse: ClickHouseServer, table: Create) -> None:
    columns = ", ".join(f"{name} {type_}" for name, (type_, _, _) in VALUES.items())
    name = table(f"id Int64, {columns}", "MergeTree ORDER BY id")
    literals = ", ".join(f"CAST({value} AS {type_})" for type_, value, _ in VALUES.values())
    clickhouse.execute(f"INSERT INTO {name} SELECT 7, {literals}")
    (row,) = everything(source(clickhouse, f"table_name: {name}"))
    assert row == {"id": 7, **{name: value for name, (_, _, value) in VALUES.items()}, "_gs_op": "i"}


def test_text_that_is_not_utf_8_makes_its_row_bad(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("id Int64, a String", "MergeTree ORDER BY id", "VALUES (1, 'a'), (2, unhex('FF')), (3, 'c')")
    first, bad, last = everything(source(clickhouse, f"table_name: {name}"))
    assert (first["id"], last["id"]) == (1, 3)
    assert isinstance(bad, BadRow)
    assert (bad.reason, bad.source) == ("decode_error", {"table": name, "key": [2]})
    made = source(clickhouse, f"table_name: {name}")
    made.open({})
    offer = made.offer(PLENTY)
    assert offer is not None
    assert [place["key"] for place in made.locator().places(offer.slices[0].parts[0])] == [[1], [2], [3]]


def test_only_columns_that_the_pipeline_uses_are_read(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("id Int64, a String, b Date", "MergeTree ORDER BY id", "VALUES (1, 'a', 0)")
    made = source(clickhouse, f"table_name: {name}", read=("b",))
    assert everything(made) == [{"b": dt.date(1970, 1, 1)}]
    assert everything(source(clickhouse, f"table_name: {name}, columns: a", read=("_gs_op",))) == [{"_gs_op": "i"}]


def test_a_user_who_may_change_no_setting_reads(clickhouse: ClickHouseServer) -> None:
    clickhouse.execute("CREATE OR REPLACE TABLE shop.open ENGINE = MergeTree ORDER BY id AS SELECT 1 AS id, 'a' AS a")
    login = {"user": READER, "password": clickhouse_secret(READER_PASSWORD)}
    assert ids(everything(source(clickhouse, "table_name: shop.open", **login))) == [1]


def clickhouse_secret(text: str) -> Any:
    from streamling.spec.secret import Secret

    return Secret(text)


# Ranges

KEYS = {
    "Int64": "arrayJoin([-9223372036854775808, -3, 0, 9223372036854775807])",
    "UInt64": "arrayJoin([0, 18446744073709551615])",
    "Int256": "arrayJoin([-5, 5])",
    "String": "arrayJoin(['', 'a', 'it\\'s', 'ü', unhex('FF')])",
    "LowCardinality(String)": "arrayJoin(['a', 'b'])",
    "FixedString(2)": "arrayJoin(['a', 'bc'])",
    "Date": "arrayJoin([toDate(0), toDate(20000)])",
    # An hour that comes twice in a night of October.
    "DateTime('Europe/Berlin')": "arrayJoin([toDateTime(1603585800, 'UTC'), toDateTime(1603589400, 'UTC')])",
    "DateTime64(3)": "arrayJoin(['1960-01-01 00:00:00.5', '2020-01-01 00:00:00.001'])",
    "UUID": f"arrayJoin(['{UUID}', '00000000-5cb3-11e7-907b-a6006ad3dba0', '61f0c404-5cb3-11e7-007b-a6006ad3dba0'])",
    "Decimal(10, 2)": "arrayJoin(['-1.5', '2.25'])",
    "Enum8('z' = 1, 'a' = 2)": "arrayJoin(['a', 'z'])",
    "IPv6": "arrayJoin(['::1', '1.2.3.4'])",
}


@pytest.mark.parametrize("type_", KEYS)
def test_a_restart_after_every_offer_gives_each_row_once_in_the_order_of_the_key(
    clickhouse: ClickHouseServer, table: Create, type_: str
) -> None:
    """Three rows of one key: offers of two rows are cut between keys and inside of them."""
    rows = f"SELECT CAST({KEYS[type_]} AS {type_}), number FROM numbers(3)"
    name = table(f"k {type_}, id UInt32", "MergeTree ORDER BY (k, id)", rows)
    expected = [int(line) for line in clickhouse.execute(f"SELECT id FROM {name} ORDER BY k, id").split()]
    taken = list(steps(lambda: source(clickhouse, f"table_name: {name}", read=("id",)), Room(2, 1, 1)))
    assert [row["id"] for _, rows in taken for row in rows] == expected
    assert all(len(rows) <= 2 for _, rows in taken)
    slices = [slice_ for slice_, _ in taken]
    assert [after.start for after in slices] == [None, *(before.end for before in slices[:-1])]


def test_positions_have_the_form_that_others_know(clickhouse: ClickHouseServer, table: Create) -> None:
    rows = "VALUES (5, 'a'), (5, 'b'), (5, 'c'), (7, 'd')"
    name = table("k Int64, id String", "MergeTree ORDER BY (k, id)", rows)
    taken = steps(lambda: source(clickhouse, f"table_name: {name}"), Room(2, 1, 2))
    inside, after, end = (slice_.end for slice_, _ in taken)
    five, seven, eight = ({"value": value, "data_type": "Int64"} for value in (5, 6, 8))
    assert inside == {"sorting_keys": ["k", "id"], "args": [five, {"value": "b", "data_type": "Utf8"}]}
    assert after == {"sorting_keys": ["k", "id"], "args": [seven]}
    assert end == {"sorting_keys": ["k", "id"], "args": [eight]}
    assert everything(source(clickhouse, f"table_name: {name}"), positions={KEY: {**inside, "args": []}})  # type: ignore[dict-item]


def test_dense_and_sparse_keys_are_read_in_pages_of_the_same_size(clickhouse: ClickHouseServer, table: Create) -> None:
    spread = "SELECT if(number < 500, number, number * 1000000000000), number FROM numbers(1000)"
    name = table("k Int64, id UInt32", "MergeTree ORDER BY k", spread, "SELECT 40, 1000 + number FROM numbers(60)")
    made = source(clickhouse, f"table_name: {name}", page_size=100)
    made.open({})
    sizes: list[int] = []
    found: list[Any] = []
    while (offer := made.offer(PLENTY)) is not None:
        rows = list(read_slice(made, offer.slices[0]))
        sizes.append(len(rows))
        found += rows
    assert sorted(ids(found)) == list(range(1060))
    assert max(sizes) <= 100
    assert len(sizes) <= 13
    extent = made.extent()
    assert extent is not None
    assert (extent.done, extent.total, extent.unit) == (1060, 1060, "rows")


def test_one_hot_key_of_300_000_rows_is_cut_by_the_rest_of_the_key(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("k Int64, id UInt32", "MergeTree ORDER BY (k, id)", "SELECT 1, number FROM numbers(300000)")
    sizes: list[int] = []
    found: list[int] = []
    for slice_, rows in steps(lambda: source(clickhouse, f"table_name: {name}"), Room(70_000, 2, 10_000)):
        sizes.append(len(rows))
        found += ids(rows)
        assert len(slice_.parts) == (2 if len(rows) == 70_000 else 1)
    assert found == list(range(300_000))
    assert sizes == [70_000] * 4 + [20_000]


def test_an_offer_goes_on_after_the_end_of_a_hot_key(clickhouse: ClickHouseServer, table: Create) -> None:
    rows = "SELECT intDiv(number, 30), number FROM numbers(120)"
    name = table("k Int64, id UInt32", "MergeTree ORDER BY (k, id)", rows)
    taken = list(steps(lambda: source(clickhouse, f"table_name: {name}"), Room(20, 4, 5)))
    assert [len(rows) for _, rows in taken] == [20] * 6
    assert [id_ for _, rows in taken for id_ in ids(rows)] == list(range(120))


def test_a_key_that_cannot_be_cut_is_one_page_or_an_error(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("k Int64, id UInt32", "MergeTree ORDER BY k", "SELECT 1, number FROM numbers(300)", "VALUES (2, 300)")
    small = Room(50, 1, 10)
    assert sorted(ids(everything(source(clickhouse, f"table_name: {name}"), small))) == list(range(301))
    with pytest.raises(PermanentError, match=r"has 300 rows with the key \(1\); a page has at most 299") as caught:
        everything(source(clickhouse, f"table_name: {name}", page_size=299), small)
    assert "page_size" in (caught.value.hint or "")


def test_the_same_range_has_the_same_order_every_time(clickhouse: ClickHouseServer, table: Create) -> None:
    """Also for rows with the same key, in parts of the table that are read in parallel."""
    inserts = [f"SELECT number % 3, {n} * 100 + number, map('a', toUInt8(number)) FROM numbers(100)" for n in range(8)]
    name = table("k Int64, id UInt32, m Map(String, UInt8)", "MergeTree ORDER BY k", *inserts)
    first = everything(source(clickhouse, f"table_name: {name}"))
    clickhouse.execute(f"SYSTEM START MERGES {name}")
    clickhouse.execute(f"OPTIMIZE TABLE {name} FINAL")
    assert everything(source(clickhouse, f"table_name: {name}")) == first
    assert len(first) == 800


def test_rows_that_were_too_large_are_offered_again(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("id Int64", "MergeTree ORDER BY id", "SELECT number FROM numbers(1000)")
    for kept in range(4):
        made = source(clickhouse, f"table_name: {name}")
        made.open({})
        offer = made.offer(Room(1000, 4, 10))
        assert offer is not None
        (slice_,) = offer.slices
        assert made.ended
        shortened = made.take_back(slice_, slice_.parts[kept - 1] if kept else None)
        rows = ids(list(read_slice(made, shortened))) if shortened else []
        assert len(rows) == 250 * kept
        while (again := made.offer(PLENTY)) is not None:
            assert again.slices[0].start == (shortened.end if shortened else None)
            rows += ids(list(read_slice(made, again.slices[0])))
        assert rows == list(range(1000))


# Where reading starts and ends


def test_an_empty_table_ends_at_once_and_one_that_grows_at_the_key_it_had(
    clickhouse: ClickHouseServer, table: Create
) -> None:
    name = table("id Int64", "MergeTree ORDER BY id")
    assert everything(source(clickhouse, f"table_name: {name}")) == []
    clickhouse.execute(f"INSERT INTO {name} SELECT number FROM numbers(100)")
    made = source(clickhouse, f"table_name: {name}")
    made.open({})
    found: list[int] = []
    while (offer := made.offer(Room(30, 1, 1))) is not None:
        clickhouse.execute(f"INSERT INTO {name} SELECT 1000 + number FROM numbers(50)")
        found += ids(list(read_slice(made, offer.slices[0])))
        end = offer.slices[0].end
    assert found == list(range(100))
    assert len(everything(source(clickhouse, f"table_name: {name}"), positions={KEY: end})) == 50 * 4


def test_start_at_counts_until_a_position_under_it_is_stored(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("id Int64", "MergeTree ORDER BY id", "SELECT number - 50 FROM numbers(100)")

    def begun(start: str | None, positions: dict[str, Any]) -> tuple[int, Any]:
        option = f", start_at: {json.dumps(start)}" if start else ""
        made = source(clickhouse, f"table_name: {name}{option}")
        made.open(positions)
        offer = made.offer(Room(10, 1, 1))
        assert offer is not None
        return ids(list(read_slice(made, offer.slices[0])))[0], {KEY: offer.slices[0].end}

    assert begun(None, {})[0] == -50
    first, stored = begun("-5, 7", {})
    assert first == -5
    assert begun("-5", stored)[0] == 5
    assert begun(None, stored)[0] == 5
    assert begun("30", stored)[0] == 30
    with pytest.raises(StreamlingError, match="'start_at' is 'x'; it must begin with a whole number"):
        source(clickhouse, f"table_name: {name}, start_at: x")


def test_a_position_of_another_sorting_key_is_refused(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("id Int64", "MergeTree ORDER BY id", "VALUES (1)")
    made = source(clickhouse, f"table_name: {name}")
    with pytest.raises(PermanentError, match="does not fit the table") as caught:
        made.open({KEY: {"sorting_keys": ["k"], "args": [{"value": 5, "data_type": "Int64"}]}})
    assert "state reset" in (caught.value.hint or "")


# Versions

REPLACING = "ReplacingMergeTree(v, dead) ORDER BY (k, id)"


def test_the_newest_version_counts_and_is_filtered_afterwards(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table(
        "k Int64, id String, a String, v UInt64, dead UInt8",
        REPLACING,
        "VALUES (1, 'a', 'only', 1, 0), (1, 'b', 'old', 1, 0), (1, 'c', 'new', 2, 0)",
        "VALUES (1, 'b', 'new', 2, 0), (1, 'c', 'old', 1, 0), (1, 'd', 'alive', 1, 0), (1, 'e', 'alive', 2, 0)",
        "VALUES (1, 'd', 'dead', 2, 1), (1, 'e', 'dead', 1, 1)",
    )

    def found(more: str) -> list[tuple[str, str]]:
        made = source(clickhouse, f"table_name: {name}, columns: 'id, a'{more}")
        assert made.columns.names == ("id", "a", "_gs_op")
        return [(row["id"], row["a"]) for row in everything(made)]

    assert found("") == [("a", "only"), ("b", "new"), ("c", "new"), ("e", "alive")]
    assert found(""", filter: "a = 'old' OR v = 1 -- of the rows that count" """) == [("a", "only")]


def test_of_equal_versions_the_deleted_row_counts_else_the_latest(clickhouse: ClickHouseServer, table: Create) -> None:
    rows = ("(1, 'a', 5, 0)", "(1, 'a', 5, 1)", "(2, 'a', 5, 1)", "(2, 'a', 5, 0)", "(3, 'x', 5, 0)", "(3, 'y', 5, 0)")
    inserts = [f"VALUES {row}" for row in rows]
    name = table("id Int64, a String, v UInt64, dead UInt8", "ReplacingMergeTree(v, dead) ORDER BY id", *inserts)
    assert [(row["id"], row["a"]) for row in everything(source(clickhouse, f"table_name: {name}"))] == [(3, "y")]


def test_a_filter_and_a_computed_key(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("id Int64, at DateTime", "MergeTree ORDER BY (id, toDate(at))", "SELECT 1, number FROM numbers(100)")
    condition = "toUnixTimestamp(at) < 50 OR 0"
    made = source(clickhouse, f"table_name: {name}, filter: {condition}", page_size=100)
    assert len(everything(made, Room(100, 3, 1))) == 50


# What can go wrong


def test_no_fault_of_the_connection_loses_a_row_or_ends_in_part_of_a_page(
    clickhouse: ClickHouseServer, table: Create
) -> None:
    name = table("id Int64, a String", "MergeTree ORDER BY id", "SELECT number, 'some text' FROM numbers(40000)")
    with spoiling_proxy(clickhouse.url, "cut", "short", "exception") as proxy:
        made = source(clickhouse, f"table_name: {name}", url=proxy.url)
        made.open({})
        offer = made.offer(Room(40_000, 1, 50_000))
        assert offer is not None
        messages = []
        while proxy.faults:
            with pytest.raises(TransientError) as caught:
                list(read_slice(made, offer.slices[0]))
            messages.append(caught.value.message)
            assert (caught.value.code, caught.value.node) == ("SOURCE_FAILED", "s")
        assert "does not answer" in messages[0]
        assert "an answer that is not complete" in messages[1]
        assert "Memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)" in messages[2]
        assert "__exception__" not in messages[2]
        assert len(list(read_slice(made, offer.slices[0]))) == 40_000


def test_a_query_that_takes_too_long_is_repeated_for_half_of_the_range(
    clickhouse: ClickHouseServer, table: Create
) -> None:
    name = table("k Int64, id Int64", "MergeTree ORDER BY (k, id)", "SELECT number < 50, number FROM numbers(100)")
    with spoiling_proxy(clickhouse.url, "silent", "silent", silence=2.5) as proxy:
        made = source(clickhouse, f"table_name: {name}", url=proxy.url, timeout=2)
        assert sorted(ids(everything(made))) == list(range(100))
        assert proxy.faults == []
    with spoiling_proxy(clickhouse.url, *["silent"] * 3, silence=2.5) as proxy:
        made = source(clickhouse, f"table_name: {name}, filter: id = 5", url=proxy.url, timeout=2, page_size=1)
        made.open({})
        offer = made.offer(PLENTY)
        assert offer is not None
        with pytest.raises(QueryTimeout):  # one row cannot be halved
            list(read_slice(made, offer.slices[0]))


def test_an_exception_of_the_query_fails_at_once(clickhouse: ClickHouseServer, table: Create) -> None:
    """Also one that comes after rows were sent with a status of success."""
    name = table("id Int64", "MergeTree ORDER BY id", "SELECT number FROM numbers(300000)")
    for made, text in (
        (source(clickhouse, f"table_name: {name}, filter: throwIf(id = 290000) = 0"), "FUNCTION_THROW_IF"),
        (source(clickhouse, f"table_name: {name}, filter: nothing = 1"), "UNKNOWN_IDENTIFIER"),
    ):
        began = time.monotonic()
        with pytest.raises(PermanentError, match=text) as caught:
            everything(made)
        assert caught.value.code == "SOURCE_FAILED"
        assert time.monotonic() - began < 10


def test_what_changes_between_the_look_up_and_reading_is_named(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("id Int64, a String", "MergeTree ORDER BY id", "VALUES (1, 'a')")
    made = source(clickhouse, f"table_name: {name}")
    clickhouse.execute(f"SYSTEM START MERGES {name}")  # dropping a column is one
    clickhouse.execute(f"ALTER TABLE {name} DROP COLUMN a")
    with pytest.raises(PermanentError, match="UNKNOWN_IDENTIFIER"):
        everything(made)
    clickhouse.execute(f"DROP TABLE {name} SYNC")
    with pytest.raises(PermanentError, match="UNKNOWN_TABLE"):
        everything(made)


def test_a_server_that_is_away_is_a_transient_error(clickhouse: ClickHouseServer, table: Create) -> None:
    name = table("id Int64", "MergeTree ORDER BY id", "SELECT number FROM numbers(10)")
    made: ClickHouseSource = source(clickhouse, f"table_name: {name}")
    made.open({})
    clickhouse.kill()
    try:
        with pytest.raises(TransientError, match="does not answer"):
            made.offer(PLENTY)
    finally:
        clickhouse.start()
    offer = made.offer(PLENTY)
    assert offer is not None
    assert ids(list(read_slice(made, offer.slices[0]))) == list(range(10))
