"""The source of a replay gives letters in slices that hold them, one slice per epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamling.connector import BadRow, Room
from streamling.letters.letter import Letter
from streamling.letters.source import LETTER_ID, LetterSource, PayloadReader, RowReader, unpack
from streamling.plan.types import INT64, Field, Schema

COLUMNS = Schema((Field("n", INT64, nullable=False),))
ROOM = Room(10_000, 1, 1)


def letter(n: int, *, now_us: int = 5, row: Any = None, raw: bytes | None = None) -> Letter:
    content = row if row is not None else {"n": n}
    return Letter(
        f"id{n}",
        "app",
        "node",
        "sink",
        "write",
        "r",
        "t",
        raw,
        None,
        None,
        content,
        {"offset": n},
        1,
        "2023-11-14T22:13:20.000Z",
        now_us,
    )


def source(letters: Sequence[Letter], *, same_now: bool = False) -> LetterSource:
    made = LetterSource("__letters:node", COLUMNS, None, RowReader(COLUMNS), lambda: letters, same_now=same_now)
    made.open({})
    return made


def epochs(given: LetterSource, room: Room = ROOM) -> Iterator[list[str]]:
    while not given.ended:
        offer = given.offer(room)
        assert offer is not None
        (slice_,) = offer.slices
        assert given.offer(room) is None  # before the epoch is delivered there is no other
        yield [one.id for part in slice_.parts for one in unpack(part)]
        given.committed([slice_])
    assert given.offer(room) is None


def test_a_slice_has_a_few_hundred_letters_or_a_few_megabytes() -> None:
    assert [len(ids) for ids in epochs(source([letter(n) for n in range(1200)]))] == [500, 500, 200]
    assert [len(ids) for ids in epochs(source([letter(n) for n in range(5)]), Room(2, 1, 1))] == [2, 2, 1]
    large = [letter(n, raw=b"x" * 3_000_000) for n in range(3)]
    assert [len(ids) for ids in epochs(source(large))] == [1, 1, 1]


def test_letters_with_another_now_are_in_another_epoch_if_that_matters() -> None:
    letters = [letter(1, now_us=7), letter(2, now_us=5), letter(3, now_us=7)]
    assert list(epochs(source(letters))) == [["id1", "id2", "id3"]]
    assert list(epochs(source(letters, same_now=True))) == [["id2"], ["id1", "id3"]]


def test_positions_follow_each_other_and_differ_for_other_letters() -> None:
    given = source([letter(1), letter(2)])
    first = given.offer(Room(1, 1, 1))
    assert first is not None
    given.committed(first.slices)
    second = given.offer(ROOM)
    assert second is not None
    assert (first.slices[0].start, second.slices[0].start) == (None, first.slices[0].end)
    other = source([letter(9), letter(2)]).offer(Room(1, 1, 1))
    assert other is not None
    assert other.slices[0].end != first.slices[0].end
    given.open({"__letters:node": second.slices[0].end})
    third = given.offer(ROOM)
    assert third is not None
    assert third.slices[0].start == second.slices[0].end


def test_a_row_that_does_not_fit_names_its_letter() -> None:
    offer = source([letter(1), letter(2, row={"n": "two"}), letter(3)]).offer(ROOM)
    assert offer is not None
    bad, batch = RowReader(COLUMNS).read(offer.slices[0].parts[0])
    assert isinstance(bad, BadRow)
    assert isinstance(batch, pa.RecordBatch)
    assert (bad.reason, bad.source) == ("schema_mismatch", {LETTER_ID: "id2"})
    assert batch.to_pylist() == [{"n": 1}, {"n": 3}]


class Halving:
    """Decodes even numbers to two rows, and rejects odd ones."""

    def decode(self, rows: Sequence[BadRow]) -> Iterator[pa.RecordBatch | BadRow]:
        for row in rows:
            assert row.raw is not None
            if row.raw[0] % 2:
                yield BadRow("odd", f"{row.raw[0]}", row.source)
            else:
                yield pa.RecordBatch.from_pydict({"n": [row.raw[0] // 2] * 2})


@pytest.mark.parametrize(("payloads", "bad"), [([2, 4], []), ([2, 3, 4, 5], ["id3", "id5"])])
def test_a_payload_that_cannot_be_decoded_names_its_letter(payloads: list[int], bad: list[str]) -> None:
    offer = source([letter(n, raw=bytes([n])) for n in payloads]).offer(ROOM)
    assert offer is not None
    items = list(PayloadReader(Halving()).read(offer.slices[0].parts[0]))
    assert [item.source[LETTER_ID] for item in items if isinstance(item, BadRow)] == bad
    assert sum(item.num_rows for item in items if isinstance(item, pa.RecordBatch)) == 4
