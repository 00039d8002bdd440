"""The generator: a row is a function of its number, a slice a stretch of numbers."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.connector import Offer, Room, Source
from streamling.errors import InvalidPipeline
from streamling.sources import generator
from support.connector_samples import source

KEY = "numbers:generator"


def room(rows: int, parts: int = 1, part_rows: int = 1) -> Room:
    return Room(rows, parts, part_rows)


def opened(fields: str, at: int | None = None) -> Source:
    made = source(f"type: generator, {fields}" if fields else "type: generator")
    made.open({KEY: {"next": at}, "another:generator": {"next": 99}} if at is not None else {})
    return made


def numbers(of: Source, offer: Offer | None) -> list[int]:
    """The numbers of all rows of an offer, read part by part."""
    assert offer is not None
    reader = pickle.loads(pickle.dumps(of.reader()))
    parts = [part for s in offer.slices for part in s.parts]
    return [n for part in parts for batch in reader.read(part) for n in batch.column("id").to_pylist()]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=10), st.integers(1, 4), st.integers(1, 9))
def test_offers_follow_each_other_and_their_parts_cover_them(sizes: list[int], parts: int, part_rows: int) -> None:
    made, seen, position = opened(""), [], None
    for rows in sizes:
        offer = made.offer(room(rows, parts, part_rows))
        (slice_,) = offer.slices
        assert (slice_.key, slice_.node, slice_.start) == (KEY, "numbers", position)
        assert slice_.rows == rows
        assert 1 <= len(slice_.parts) <= parts
        seen += numbers(made, offer)
        position = slice_.end
    assert seen == list(range(sum(sizes)))
    assert position == {"next": sum(sizes)}


def test_a_part_of_its_own_must_be_worth_it() -> None:
    (slice_,) = opened("").offer(Room(100, parts=8, part_rows=40)).slices
    assert slice_.parts == ([0, 50], [50, 100])


def test_it_goes_on_behind_the_stored_position() -> None:
    made = opened("rows: 10", at=7)
    offer = made.offer(room(100))
    assert offer.slices[0].start == {"next": 7}
    assert numbers(made, offer) == [7, 8, 9]


def test_opened_again_it_starts_anew_from_the_position() -> None:
    made = opened("rows: 10")
    made.offer(room(8))
    made.open({KEY: {"next": 2}})
    assert numbers(made, made.offer(room(2))) == [2, 3]


def test_with_rows_it_ends_after_the_last() -> None:
    made = opened("rows: 5")
    assert made.bounded and not made.ended
    assert made.offer(room(3)).rows == 3
    assert not made.ended
    assert made.offer(room(100)).rows == 2
    assert made.ended
    assert made.offer(room(100)) is None


@pytest.mark.parametrize("at", [5, 9])
def test_at_or_behind_its_end_it_has_ended(at: int) -> None:
    made = opened("rows: 5", at=at)
    assert made.ended
    assert made.offer(room(10)) is None


def test_no_rows_at_all_is_an_end_too() -> None:
    assert opened("rows: 0").ended


def test_without_rows_it_never_ends() -> None:
    made = opened("", at=10**12)
    assert not made.bounded and not made.ended
    assert made.offer(room(1_000_000)).rows == 1_000_000


def test_a_rate_gives_as_many_rows_as_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(generator.time, "monotonic", lambda: clock[0])
    made = opened("rate: 10", at=50)
    assert made.offer(room(1000)) is None
    clock[0] += 0.25
    assert made.offer(room(1000)).slices[0].end == {"next": 52}
    assert made.offer(room(1000)) is None
    clock[0] += 1
    assert made.offer(room(4)).slices[0].end == {"next": 56}
    assert made.offer(room(1000)).slices[0].end == {"next": 62}


def test_reading_a_part_again_gives_the_same_rows() -> None:
    made = opened("")
    offer = made.offer(room(120_000, parts=2))
    assert numbers(made, offer) == numbers(made, offer) == list(range(120_000))


def test_batches_stay_small() -> None:
    assert [b.num_rows for b in opened("").reader().read([0, 120_000])] == [50_000, 50_000, 20_000]


def columns(fields: str) -> dict[str, str]:
    return {name: text for text, name in source(f"type: generator, {fields}").select.columns}


RANDOM = "columns: {a: random(), b: random()}"


def test_what_is_random_depends_on_seed_column_and_row_only() -> None:
    assert columns(RANDOM) == columns(RANDOM)
    assert columns(f"seed: 1, {RANDOM}")["a"] != columns(f"seed: 2, {RANDOM}")["a"]
    assert columns(RANDOM)["a"] != columns(RANDOM)["b"]
    assert "`id`" in columns(RANDOM)["a"]


def test_every_row_is_an_insert_unless_a_column_says_otherwise() -> None:
    assert list(columns("columns: {n: id}")) == ["n", "_gs_op"]
    assert "'i'" in columns("columns: {n: id}")["_gs_op"]
    assert list(columns("columns: {_gs_op: \"'d'\", n: id}")) == ["n", "_gs_op"]
    assert "'d'" in columns("columns: {_gs_op: \"'d'\", n: id}")["_gs_op"]


def test_only_a_generator_that_asks_for_the_time_needs_it() -> None:
    assert source("type: generator, columns: {at: now()}").select.parameters == {"epoch_now"}
    assert not source("type: generator").select.parameters


def test_an_expression_that_does_not_compile_is_reported_with_its_place() -> None:
    with pytest.raises(InvalidPipeline) as caught:
        source("type: generator, columns: {a: id, b: nobody + 1}")
    (problem,) = caught.value.problems
    assert (problem.code, problem.node) == ("SQL_UNKNOWN_COLUMN", "Numbers")
    assert problem.where is not None and problem.where.line == 1


def test_calls_in_two_columns_have_values_of_their_own() -> None:
    found = columns("columns: {a: uuid(), b: uuid()}")
    assert found["a"] != found["b"]
