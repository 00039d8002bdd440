"""An epoch is recorded before a sink sees it and finalized after all have it; each step builds on the one before."""

from __future__ import annotations

import pytest

from streamling.engine.pending import Ledger, Pending
from streamling.engine.state import MemoryState
from streamling.errors import Fenced
from streamling.plugin.contract import Epoch, Json, Slice


def slice_(key: str, start: Json, end: int) -> Slice:
    return Slice("node", key, start, {"next": end}, ([0, end], {"any": ["json", None]}), 7)


def epoch(id_: str, *slices: Slice, number: int = 1) -> Epoch:
    return Epoch(id_, number, "app", "gen", 1_700_000_000_000_001, (1 << 61) + 1, slices)


@pytest.fixture
def store() -> MemoryState:
    return MemoryState()


@pytest.fixture
def ledger(store: MemoryState) -> Ledger:
    return Ledger(store, recording=True)


FIRST = epoch("e1", slice_("a", None, 5), slice_("b", None, 6))
FOUND = Pending(FIRST, "plan")


def test_positions_are_what_sources_stored_and_nothing_of_ours(store: MemoryState, ledger: Ledger) -> None:
    store.put({"__generation": "g"})
    ledger.record(FIRST, "plan")
    assert ledger.positions() == {}
    ledger.finalize(FOUND)
    assert ledger.positions() == {"a": {"next": 5}, "b": {"next": 6}}


def test_a_recorded_epoch_is_found_again_as_it_was(ledger: Ledger) -> None:
    assert ledger.record(FIRST, "plan") == FOUND
    assert ledger.pending("app", "gen", ["node"]) == [FOUND]


def test_records_of_other_sources_are_left_alone(ledger: Ledger) -> None:
    other = Slice("other", "c", None, 1, (), 1)
    ledger.record(epoch("mixed", slice_("a", None, 5), other), "plan")
    assert ledger.pending("app", "gen", []) == []
    assert [p.epoch.slices for p in ledger.pending("app", "gen", ["other"])] == [(other,)]


def test_a_finalized_epoch_leaves_no_record(store: MemoryState, ledger: Ledger) -> None:
    ledger.record(FIRST, "plan")
    ledger.finalize(FOUND)
    assert ledger.pending("app", "gen", ["node"]) == []
    assert not [key for key in store.items() if key.startswith("__pending")]


def test_several_records_are_found_by_number(ledger: Ledger) -> None:
    later, earlier = epoch("x", slice_("a", None, 1), number=9), epoch("y", slice_("b", None, 1), number=4)
    ledger.record(later, "p")
    ledger.record(earlier, "p")
    assert [p.epoch.id for p in ledger.pending("app", "gen", ["node"])] == ["y", "x"]


def test_numbers_go_on_from_what_is_stored(store: MemoryState, ledger: Ledger) -> None:
    assert ledger.next_number() == 1
    ledger.record(epoch("e", slice_("a", None, 1), number=7), "p")
    assert Ledger(store, recording=True).next_number() == 8


def test_who_builds_on_moved_positions_is_fenced_and_moves_nothing(store: MemoryState, ledger: Ledger) -> None:
    store.put({"a": {"next": 3}})
    before = store.items()
    with pytest.raises(Fenced) as caught:
        ledger.record(FIRST, "plan")
    assert caught.value.code == "STATE_MOVED"
    assert "a, b" in caught.value.message
    assert "application_id" in (caught.value.hint or "")
    assert store.items() == before


def test_who_finds_another_owners_record_is_fenced(store: MemoryState, ledger: Ledger) -> None:
    ledger.record(epoch("theirs", slice_("b", None, 2)), "plan")
    before = store.items()
    with pytest.raises(Fenced):
        ledger.record(FIRST, "plan")
    assert store.items() == before


@pytest.mark.parametrize("moved", [{"a": {"next": 1}}, {"__pending:b": {"epoch": "other"}}])
def test_a_finalize_is_fenced_if_a_position_or_the_record_has_changed(
    store: MemoryState, ledger: Ledger, moved: dict[str, Json]
) -> None:
    ledger.record(FIRST, "plan")
    store.put(moved)
    before = store.items()
    with pytest.raises(Fenced):
        ledger.finalize(FOUND)
    assert store.items() == before


def test_an_epoch_is_finalized_once(ledger: Ledger) -> None:
    ledger.record(FIRST, "plan")
    ledger.finalize(FOUND)
    with pytest.raises(Fenced):
        ledger.finalize(FOUND)


def test_a_dropped_record_leaves_positions_alone_and_frees_the_keys(store: MemoryState, ledger: Ledger) -> None:
    ledger.record(FIRST, "plan")
    ledger.drop(ledger.pending("app", "gen", ["node"])[0])
    assert ledger.pending("app", "gen", ["node"]) == []
    assert ledger.positions() == {}
    ledger.record(epoch("e2", slice_("a", None, 2)), "plan")


def test_a_record_that_its_owner_has_finalized_cannot_be_dropped(ledger: Ledger) -> None:
    ledger.record(FIRST, "plan")
    (found,) = ledger.pending("app", "gen", ["node"])
    ledger.finalize(FOUND)
    with pytest.raises(Fenced):
        ledger.drop(found)


def test_without_recording_only_the_end_is_written(store: MemoryState) -> None:
    ledger = Ledger(store, recording=False)
    record = ledger.record(FIRST, "plan")
    assert store.items() == {}
    ledger.finalize(record)
    assert store.items() == {"a": {"next": 5}, "b": {"next": 6}, "__epoch": 1}


def test_a_record_found_is_removed_even_if_this_pipeline_makes_none(ledger: Ledger, store: MemoryState) -> None:
    ledger.record(FIRST, "plan")
    (found,) = ledger.pending("app", "gen", ["node"])
    Ledger(store, recording=False).finalize(found)
    assert not [key for key in store.items() if key.startswith("__pending:")]


def test_a_renamed_record_takes_the_place_of_the_old_one(ledger: Ledger) -> None:
    record = ledger.record(FIRST, "plan")
    renamed = ledger.rename(record, "other")
    (found,) = ledger.pending("app", "gen", ["node"])
    assert found == renamed
    assert found.epoch.slices == FIRST.slices
    with pytest.raises(Fenced):
        ledger.finalize(record)


def test_a_record_that_is_gone_cannot_be_renamed(ledger: Ledger) -> None:
    record = ledger.record(FIRST, "plan")
    ledger.drop(record)
    with pytest.raises(Fenced):
        ledger.rename(record, "other")


def test_without_recording_a_stale_owner_is_fenced_too(store: MemoryState) -> None:
    store.put({"b": {"next": 1}})
    with pytest.raises(Fenced):
        Ledger(store, recording=False).finalize(FOUND)


def test_a_number_is_never_used_again(ledger: Ledger) -> None:
    slow = epoch("slow", slice_("a", None, 1), number=1)
    ledger.record(slow, "p")
    for number in (2, 3):  # another instance, with other keys of the same application
        quick = epoch(f"quick{number}", slice_(f"b{number}", None, 1), number=number)
        ledger.record(quick, "p")
        ledger.finalize(Pending(quick, "p"))
    ledger.finalize(Pending(slow, "p"))
    assert ledger.next_number() == 4
