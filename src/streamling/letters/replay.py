"""What becomes of the letters of a replay: replayed once every sink has their rows, else open with the new reason."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from streamling.connector import Epoch, Slice
from streamling.letters.letter import Letter, LetterBatch, LetterStatus
from streamling.letters.selection import DeadLetters
from streamling.letters.source import LETTER_ID, unpack
from streamling.plan.types import Schema

log = logging.getLogger(__name__)


class LetterReplay:
    """The letters of one node that are replayed, and their results so far."""

    def __init__(self, found: DeadLetters, letters: Sequence[Letter], node: str) -> None:
        """`node`: the one that rejects rows in the replay, as its store is named."""
        self._found = found
        self._letters = letters
        self._node = node
        self._rejected: dict[str, dict[str, set[str]]] = {}
        """By epoch and rejecting node: the letters that were rejected again."""
        self.replayed: set[str] = set()
        self.failed: set[str] = set()

    @property
    def count(self) -> int:
        return len(self._letters)

    def waiting(self) -> list[Letter]:
        """The letters without a result: open, and not rejected again in this run.

        Called after the position was read. Letters are marked before a position moves, so one that another replay has
        delivered up to this position is not among them.
        """
        self._found.refresh()
        current = [self._found.letter(letter.id) for letter in self._letters if letter.id not in self.failed]
        return [letter for letter in current if letter is not None and letter.status == LetterStatus.OPEN.value]

    def reject(self, epoch: Epoch, node: str, again: Mapping[str, Letter]) -> None:
        """Store the new reasons of letters, by their ids. Called again for the same epoch and node, it replaces the
        ids of the call before."""
        stored = [(letter, again[id_]) for id_ in again if (letter := self._found.letter(id_)) is not None]
        self._found.update([letter.rejected_again(other) for letter, other in stored])
        self._rejected.setdefault(epoch.id, {})[node] = set(again)

    def finish(self, epoch: Epoch) -> None:
        """Every sink has the rows of the epoch, apart from those that were rejected again."""
        by_node = self._rejected.get(epoch.id, {})
        rejected = set(chain.from_iterable(by_node.values()))
        knows_all = self._node in by_node
        delivered: list[Letter] = []
        for letter in letters_of(epoch.slices):
            stored = self._found.letter(letter.id)
            if stored is None:
                continue
            # An earlier process has delivered the epoch to this sink. The letters that the sink rejected have another
            # time since.
            if letter.id in rejected or (not knows_all and stored.timestamp != letter.timestamp):
                self.failed.add(letter.id)
            else:
                delivered.append(stored)
        self._found.resolve(delivered, LetterStatus.REPLAYED)
        self.replayed.update(letter.id for letter in delivered)

    def store_new(self, batch: LetterBatch, letters: Sequence[Letter]) -> int:
        """Store rows of the replay that none of its letters explains, next to the letters."""
        first = next(
            (stored for letter in letters_of(batch.epoch.slices) if (stored := self._found.letter(letter.id))), None
        )
        return self._found.store_of(first).put(batch, iter(letters)) if first is not None else 0


def letters_of(slices: Sequence[Slice]) -> list[Letter]:
    return [letter for slice_ in slices for part in slice_.parts for letter in unpack(part)]


class _ReplayStore:
    """In place of a node's destination: a row that is rejected again belongs to a letter that is there already."""

    def __init__(self, node: str, replay: LetterReplay, *, finishes: bool) -> None:
        """`finishes`: the node is the last one that tells what it rejects, after every sink has the epoch."""
        self.place = f"the dead letters of '{node}'"
        self._node = node
        self._replay = replay
        self._finishes = finishes

    def open(self) -> None: ...

    def put(self, batch: LetterBatch, letters: Iterator[Letter]) -> int:
        """Returns the number of new letters."""
        again, new = self._match(batch, letters)
        self._replay.reject(batch.epoch, self._node, again)
        count = self._replay.store_new(batch, new) if new else 0
        if self._finishes:
            self._replay.finish(batch.epoch)
        return count

    def remove(self, batch: LetterBatch) -> None:
        self.put(batch, iter(()))

    def close(self) -> None: ...

    def _match(self, batch: LetterBatch, letters: Iterable[Letter]) -> tuple[dict[str, Letter], list[Letter]]:
        """The rejected rows by the ids of their letters, and those that belong to none."""
        raise NotImplementedError


class EntryStore(_ReplayStore):
    """For the source of letters: its bad rows have the ids of their letters."""

    def _match(self, batch: LetterBatch, letters: Iterable[Letter]) -> tuple[dict[str, Letter], list[Letter]]:
        return {str((letter.source or {})[LETTER_ID]): letter for letter in letters}, []


class NodeStore(_ReplayStore):
    """For the transform or sink that the letters enter: a rejected row belongs to a letter with the same values."""

    def __init__(self, node: str, replay: LetterReplay, columns: Schema, *, finishes: bool) -> None:
        super().__init__(node, replay, finishes=finishes)
        self._columns = columns

    def _match(self, batch: LetterBatch, letters: Iterable[Letter]) -> tuple[dict[str, Letter], list[Letter]]:
        from streamling.formats.letter_rows import LetterRows, UnfitRow

        rows = LetterRows(self._columns)

        def values(letter: Letter) -> str:
            try:
                return repr(rows.values(letter.row))
            except UnfitRow:
                return ""

        again: dict[str, Letter] = {}
        new: list[Letter] = []
        ids: dict[str, list[str]] | None = None
        for letter in letters:
            if ids is None:
                ids = {}
                for entered in letters_of(batch.epoch.slices):
                    ids.setdefault(values(entered), []).append(entered.id)
            same = ids.get(values(letter))
            if same:
                again[same.pop(0)] = letter
            else:
                new.append(letter)
        return again, new
