"""Letters become replayed if every sink has their rows; those that their node rejects stay open with the new reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamling.connector import BadRow, Epoch, Slice
from streamling.letters.letter import Letter, LetterBatch, LetterStatus, RejectStage
from streamling.letters.replay import EntryStore, LetterReplay, NodeStore
from streamling.letters.selection import DeadLetters, Filter
from streamling.letters.source import pack
from streamling.letters.store import letter_stores
from streamling.plan.pipeline import Plan
from streamling.plan.types import INT64, Field, Schema
from streamling.spec.settings import Settings
from support.doubles import plan_of

COLUMNS = Schema((Field("n", INT64),))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_of(
        ["numbers"], ["out"], more=f", on_error: dead_letter, dead_letter: {{type: file, path: '{tmp_path}/letters'}}"
    )


@pytest.fixture
def found(plan: Plan) -> DeadLetters:
    """Four letters, two of them with the same row."""
    made = DeadLetters("app", letter_stores(plan, Settings()))
    batch = batch_of(plan, Epoch("e0", 1, "app", "g", 5, 0, (Slice("numbers", "k", 0, 1, (), 1),)))
    rows = [BadRow("old", f"old {n}", {}, row={"n": value}) for n, value in enumerate((1, 7, 7, 3))]
    made.stores["numbers"].put(batch, (batch.letter(bad, n) for n, bad in enumerate(rows)))
    return made


def batch_of(plan: Plan, epoch: Epoch) -> LetterBatch:
    return LetterBatch(plan.nodes[0].spec, RejectStage.TRANSFORM, epoch, "app")


def epoch_of(letters: list[Letter], id_: str = "e1") -> Epoch:
    return Epoch(id_, 9, "app", "g", 5, 0, (Slice("x", "x", None, 1, (pack(letters),), len(letters)),))


def rejected(plan: Plan, epoch: Epoch, *numbers: int) -> Iterator[Letter]:
    batch = batch_of(plan, epoch)
    return iter([batch.letter(BadRow("new", f"new {n}", {}, row={"n": n}), place) for place, n in enumerate(numbers)])


def results(found: DeadLetters) -> list[tuple[str, str]]:
    found.refresh()
    return sorted((letter.reason_text, letter.status) for letter in found.choose(Filter(status=None)))


def test_a_rejected_row_belongs_to_a_letter_with_the_same_values(plan: Plan, found: DeadLetters) -> None:
    letters = found.choose(Filter())
    replay = LetterReplay(found, letters, "node")
    store = NodeStore("node", replay, COLUMNS, finishes=True)
    epoch = epoch_of(letters)
    assert store.put(batch_of(plan, epoch), rejected(plan, epoch, 7, 3)) == 0
    assert results(found) == [("new 3", "open"), ("new 7", "open"), ("old 0", "replayed"), ("old 2", "replayed")]
    assert (len(replay.replayed), len(replay.failed), replay.waiting()) == (2, 2, [])


def test_a_sink_that_accepts_in_the_next_attempt_what_it_rejected_has_all_rows(plan: Plan, found: DeadLetters) -> None:
    letters = found.choose(Filter())
    replay = LetterReplay(found, letters, "node")
    sink, entry = NodeStore("node", replay, COLUMNS, finishes=False), EntryStore("entry", replay, finishes=True)
    epoch = epoch_of(letters)
    sink.put(batch_of(plan, epoch), rejected(plan, epoch, 1))
    sink.remove(batch_of(plan, epoch))
    entry.remove(batch_of(plan, epoch))
    assert {status for _, status in results(found)} == {"replayed"}


def test_what_an_earlier_process_has_rejected_in_an_epoch_that_the_sink_has_stays_open(
    plan: Plan, found: DeadLetters
) -> None:
    letters = found.choose(Filter())
    before = LetterReplay(found, letters, "node")
    epoch = epoch_of(letters)
    NodeStore("node", before, COLUMNS, finishes=False).put(batch_of(plan, epoch), rejected(plan, epoch, 3))
    after = LetterReplay(found, letters, "node")
    recovered = epoch_of(letters, "e2")
    EntryStore("entry", after, finishes=True).remove(batch_of(plan, recovered))
    assert [text for text, status in results(found) if status == "open"] == ["new 3"]


def test_a_row_that_is_the_row_of_no_letter_becomes_a_new_one(plan: Plan, found: DeadLetters) -> None:
    letters = found.choose(Filter())
    store = NodeStore("node", LetterReplay(found, letters, "node"), COLUMNS, finishes=True)
    epoch = epoch_of(letters)
    assert store.put(batch_of(plan, epoch), rejected(plan, epoch, 1000)) == 1
    assert [text for text, status in results(found) if status == "open"] == ["new 1000"]


def test_letters_that_another_process_has_replayed_meanwhile_are_not_given_again(
    plan: Plan, found: DeadLetters
) -> None:
    letters = found.choose(Filter())
    replay = LetterReplay(found, letters, "node")
    other = DeadLetters("app", letter_stores(plan, Settings()))
    other.resolve([other.letter(letters[0].id) or letters[0]], LetterStatus.REPLAYED)
    assert [letter.id for letter in replay.waiting()] == [letter.id for letter in letters[1:]]
    assert replace(letters[0], status="replayed") == other.letter(letters[0].id)
