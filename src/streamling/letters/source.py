"""The source of a replay: gives dead letters to the pipeline, a few hundred per epoch.

Delivery: a slice holds the letters themselves, so the record of an epoch has everything that a replay of it needs, and
an exactly-once sink gets each letter once, whatever is killed. The position is a counter with a hash of the last ids.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamling.connector import (
    BadRow,
    BatchPolicy,
    Counted,
    Decoder,
    Extent,
    Json,
    Locator,
    Offer,
    Projection,
    Reached,
    Reader,
    Room,
    Slice,
    Source,
    SourceCapabilities,
    Timed,
)
from streamling.letters.letter import Letter, from_json
from streamling.plan.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa

# The letters of an epoch are in its record: few enough for one value of the state backend.
_ROWS, _BYTES = 500, 4 << 20
LETTER_ID = "letter"
"""In the `source` of a bad row: the letter that it was made from."""


class LetterSource(Source):
    """Offers letters, one slice at a time: the next one when the one before is delivered."""

    # An epoch does not wait for more letters than a slice has.
    capabilities = SourceCapabilities(batch=BatchPolicy(1, None))

    def __init__(
        self,
        ref: str,
        columns: Schema,
        select: Projection | None,
        reader: Reader,
        waiting: Callable[[], Sequence[Letter]],
        *,
        same_now: bool,
    ) -> None:
        """`waiting` returns the letters that are still to be replayed. `same_now`: an epoch has only letters with the
        same `now()`."""
        self.columns = columns
        self.select = select
        self._ref = ref
        self._reader = reader
        self._waiting = waiting
        self._same_now = same_now
        self._letters: list[Letter] = []
        self._next = 0
        self._position: Json = None
        self._in_epoch = False

    def open(self, positions: Mapping[str, Json]) -> None:
        self._position = positions.get(self._ref)
        self._letters = list(self._waiting())
        if self._same_now:
            self._letters.sort(key=lambda letter: letter.now_us)
        self._next = 0
        self._in_epoch = False

    def offer(self, room: Room) -> Offer | None:
        if self._in_epoch or self.ended:
            return None
        letters = self._cut(min(room.rows, _ROWS), min(room.bytes, _BYTES))
        start, self._position = self._position, _position_after(self._position, letters)
        self._next += len(letters)
        self._in_epoch = True
        slice_ = Slice(self._ref, self._ref, start, self._position, (pack(letters),), len(letters))
        return Offer((slice_,))

    def _cut(self, rows: int, size: int) -> list[Letter]:
        letters: list[Letter] = []
        for letter in self._letters[self._next : self._next + rows]:
            size -= len(letter.to_line())
            if letters and (size < 0 or (self._same_now and letter.now_us != letters[0].now_us)):
                break
            letters.append(letter)
        return letters

    @property
    def ended(self) -> bool:
        return self._next >= len(self._letters)

    @property
    def bounded(self) -> bool:
        return True

    def reader(self) -> Reader:
        return self._reader

    def locator(self) -> Locator:
        return _LetterLocator(self._reader)

    def committed(self, slices: Sequence[Slice]) -> None:
        self._in_epoch = False

    def extent(self) -> Extent | None:
        return Extent(self._next, len(self._letters), "rows")


class EmptySource(Source):
    """Has no rows; in place of the other inputs of nodes that letters pass."""

    def __init__(self, columns: Schema) -> None:
        self.columns = columns

    def open(self, positions: Mapping[str, Json]) -> None:
        return

    def offer(self, room: Room) -> Offer | None:
        return None

    @property
    def ended(self) -> bool:
        return True

    @property
    def bounded(self) -> bool:
        return True

    def reader(self) -> Reader:
        return _NoRows()


class _NoRows:
    def read(self, part: Json) -> Iterator[pa.RecordBatch]:
        return iter(())


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the rows of letters of transforms and sinks. A bad row has the id of its letter in `source`."""

    columns: Schema

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow]:
        from streamling.formats.letter_rows import LetterRows, UnfitRow

        rows = LetterRows(self.columns)
        values = []
        for letter in unpack(part):
            try:
                values.append(rows.values(letter.row))
            except UnfitRow as error:
                yield BadRow("schema_mismatch", str(error), {LETTER_ID: letter.id})
        if values:
            yield rows.batch(values)


@dataclass(frozen=True, slots=True)
class PayloadReader:
    """Reads the payloads of letters of sources, decoded by the source. A bad row has the id of its letter."""

    decoder: Decoder

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        letters = unpack(part)
        items = list(self.decoder.decode([_bad_row(letter) for letter in letters]))
        if not any(isinstance(item, BadRow) for item in items):
            yield from items
            return
        for letter in letters:  # one by one: a bad row does not say which letter it comes from
            for item in self.decoder.decode([_bad_row(letter)]):
                yield BadRow(item.reason, item.message, {LETTER_ID: letter.id}) if isinstance(item, BadRow) else item


@dataclass(frozen=True, slots=True)
class _LetterLocator:
    """A row of a letter is where the letter says that its row was; nowhere if it does not say so."""

    reader: Reader

    def places(self, part: Json) -> Iterator[Mapping[str, Json]]:
        for letter in unpack(part):
            for item in self.reader.read(pack([letter])):
                if not isinstance(item, BadRow | Counted | Timed | Reached):
                    yield from [letter.source or {}] * item.num_rows

    def rejects(self, parts: Sequence[Json], numbers: Sequence[int]) -> Mapping[int, BadRow]:
        wanted = set(numbers)
        rejects: dict[int, BadRow] = {}
        number = 0
        for letter in (letter for part in parts for letter in unpack(part)):
            for item in self.reader.read(pack([letter])):
                if not isinstance(item, BadRow | Counted | Timed | Reached):
                    rows = range(number, number + item.num_rows)
                    rejects |= {n: BadRow("", "", {LETTER_ID: letter.id}) for n in rows if n in wanted}
                    number += item.num_rows
        return rejects


def _bad_row(letter: Letter) -> BadRow:
    place = {name: value for name, value in (letter.source or {}).items() if name != "node"}
    return BadRow(
        letter.reason_code,
        letter.reason_text,
        place,
        raw=letter.raw,
        raw_key=letter.raw_key,
        headers=letter.headers,
    )


def pack(letters: Sequence[Letter]) -> str:
    """Letters as a part of a slice: text in base64, because a JSON value of Postgres has no character NUL."""
    lines = json.dumps([letter.to_json() for letter in letters])
    return base64.b64encode(zlib.compress(lines.encode())).decode()


def unpack(part: Json) -> list[Letter]:
    contents: list[dict[str, Any]] = json.loads(zlib.decompress(base64.b64decode(str(part))))
    return [from_json(content) for content in contents]


def _position_after(position: Json, letters: Sequence[Letter]) -> Json:
    count = position.get("letters", 0) if isinstance(position, dict) else 0
    ids = hashlib.sha256(" ".join(letter.id for letter in letters).encode()).hexdigest()[:16]
    return {"letters": (count if isinstance(count, int) else 0) + len(letters), "last": ids}
