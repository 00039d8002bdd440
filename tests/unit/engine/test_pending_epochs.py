"""An epoch is recorded before a sink sees it and finalized after all have it; each step builds on the one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamling.connector import Epoch, Json, Slice
from streamling.engine.protocol.pending import Journal
from streamling.engine.protocol.state import MemoryState
from streamling.errors import Fenced


def slice_(key: str, start: Json, end: int) -> Slice:
    return Slice("node", key, start, {"next": end}, ([0, end], {"any": ["json", None]}), 7)


def epoch(id_: str, *slices: Slice, number: int = 1) -> Epoch:
    return Epoch(
        id_,
        number,
        "app",
        "gen",
        1_700_000_000_000_001,
        (1 << 61) + 1,
        slices,
        bytes=12_345,
        chunk_rows={"node": 3},
    )


def of(*nodes: str) -> Callable[[Slice], bool]:
    return lambda slice_: slice_.node in nodes


@pytest.fixture
def store() -> MemoryState:
    return MemoryState()


@pytest.fixture
def journal(store: MemoryState) -> Journal:
    return Journal(store, recording=True)


FIRST = epoch("e1", slice_("a", None, 5), slice_("b", None, 6))
FOUND = Journal(MemoryState(), recording=True).record(FIRST, "plan")


def test_positions_are_what_sources_stored_and_nothing_of_ours(store: MemoryState, journal: Journal) -> None:
    store.put({"__generation": "g"})
    journal.record(FIRST, "plan")
    assert journal.positions() == {}
    journal.finalize(FOUND)
    assert journal.positions() == {"a": {"next": 5}, "b": {"next": 6}}


def test_a_recorded_epoch_is_found_again_as_it_was(journal: Journal) -> None:
    assert journal.record(FIRST, "plan") == FOUND
    assert journal.pending("app", "gen", of("node")) == [FOUND]


def test_how_each_source_was_read_is_recorded(journal: Journal) -> None:
    two = replace(FIRST, slices=(slice_("a", None, 5), Slice("other", "b", None, 1, (), 1)), chunk_rows={"node": 9})
    journal.record(two, "plan")
    (found,) = journal.pending("app", "gen", of("node", "other"))
    assert found.epoch.chunk_rows == {"node": 9, "other": 0}


def test_a_record_of_an_earlier_version_says_nothing_of_how_rows_were_read(
    store: MemoryState, journal: Journal
) -> None:
    journal.record(FIRST, "plan")
    for key, value in store.items().items():
        if key.startswith("__pending"):
            store.put({key: {name: part for name, part in value.items() if name not in ("bytes", "chunk_rows")}})
    (found,) = journal.pending("app", "gen", of("node"))
    assert (found.epoch.chunk_rows, found.epoch.bytes) == ({}, 14 * 1024)
    journal.finalize(found)


def test_records_of_other_sources_are_left_alone(journal: Journal) -> None:
    other = Slice("other", "c", None, 1, (), 1)
    journal.record(epoch("mixed", slice_("a", None, 5), other), "plan")
    assert journal.pending("app", "gen", of()) == []
    assert [p.epoch.slices for p in journal.pending("app", "gen", of("other"))] == [(other,)]


def test_a_finalized_epoch_leaves_no_record(store: MemoryState, journal: Journal) -> None:
    journal.record(FIRST, "plan")
    journal.finalize(FOUND)
    assert journal.pending("app", "gen", of("node")) == []
    assert not [key for key in store.items() if key.startswith("__pending")]


def test_several_records_are_found_by_number(journal: Journal) -> None:
    journal.record(epoch("x", slice_("b", None, 1), number=1), "p")
    journal.record(epoch("y", slice_("a", None, 1), number=2), "p")
    assert [p.epoch.id for p in journal.pending("app", "gen", of("node"))] == ["x", "y"]


def test_numbers_go_on_from_what_is_stored(store: MemoryState, journal: Journal) -> None:
    assert journal.next_number() == 1
    journal.record(epoch("e", slice_("a", None, 1), number=1), "p")
    assert Journal(store, recording=True).next_number() == 2


def test_a_record_whose_answer_was_lost_is_known_again_although_another_process_went_on(
    store: MemoryState, journal: Journal
) -> None:
    own, others = epoch("own", slice_("a", None, 1)), epoch("other", slice_("b", None, 1))
    done = journal.record(own, "p")  # and its answer is lost
    Journal(store, recording=True).record(others, "p")
    assert journal.record(own, "p") == done
    journal.finalize(done)
    assert [p.epoch.id for p in journal.pending("app", "gen", of("node"))] == ["other"]


def test_a_number_that_another_process_has_taken_becomes_the_next_one(store: MemoryState, journal: Journal) -> None:
    journal.record(epoch("theirs", slice_("a", None, 1), number=1), "p")
    mine = journal.record(epoch("mine", slice_("b", None, 1), number=1), "p")
    assert (mine.epoch.id, mine.epoch.number) == ("mine", 2)
    journal.finalize(mine)
    assert journal.positions() == {"b": {"next": 1}}


def test_each_owner_of_an_epochs_keys_sees_and_settles_its_own(store: MemoryState, journal: Journal) -> None:
    record = journal.record(FIRST, "plan")
    (mine,) = journal.pending("app", "gen", lambda s: s.key == "b")
    assert [s.key for s in mine.epoch.slices] == ["b"]
    journal.finalize(mine)
    assert journal.positions() == {"b": {"next": 6}}
    with pytest.raises(Fenced):
        journal.finalize(record)
    (left,) = journal.pending("app", "gen", of("node"))
    assert [s.key for s in left.epoch.slices] == ["a"]


def test_an_epoch_can_be_taken_apart(journal: Journal) -> None:
    first, second = journal.record(FIRST, "plan").split()
    journal.finalize(second)
    journal.drop(first)
    assert journal.positions() == {"b": {"next": 6}}
    assert journal.pending("app", "gen", of("node")) == []


def test_who_builds_on_moved_positions_is_fenced_and_moves_nothing(store: MemoryState, journal: Journal) -> None:
    store.put({"a": {"next": 3}})
    before = store.items()
    with pytest.raises(Fenced) as caught:
        journal.record(FIRST, "plan")
    assert caught.value.code == "STATE_MOVED"
    assert "a, b" in caught.value.message
    assert "application_id" in (caught.value.hint or "")
    assert store.items() == before


def test_who_finds_another_owners_record_is_fenced(store: MemoryState, journal: Journal) -> None:
    journal.record(epoch("theirs", slice_("b", None, 2)), "plan")
    before = store.items()
    with pytest.raises(Fenced):
        journal.record(FIRST, "plan")
    assert store.items() == before


@pytest.mark.parametrize("moved", [{"a": {"next": 1}}, {"__pending:b": {"epoch": "other"}}])
def test_a_finalize_is_fenced_if_a_position_or_the_record_has_changed(
    store: MemoryState, journal: Journal, moved: dict[str, Json]
) -> None:
    journal.record(FIRST, "plan")
    store.put(moved)
    before = store.items()
    with pytest.raises(Fenced):
        journal.finalize(FOUND)
    assert store.items() == before


def test_an_epoch_is_finalized_once(journal: Journal) -> None:
    journal.record(FIRST, "plan")
    journal.finalize(FOUND)
    with pytest.raises(Fenced):
        journal.finalize(FOUND)


def test_a_dropped_record_leaves_positions_alone_and_frees_the_keys(store: MemoryState, journal: Journal) -> None:
    journal.record(FIRST, "plan")
    journal.drop(journal.pending("app", "gen", of("node"))[0])
    assert journal.pending("app", "gen", of("node")) == []
    assert journal.positions() == {}
    journal.record(epoch("e2", slice_("a", None, 2)), "plan")


def test_a_record_that_its_owner_has_finalized_cannot_be_dropped(journal: Journal) -> None:
    journal.record(FIRST, "plan")
    (found,) = journal.pending("app", "gen", of("node"))
    journal.finalize(FOUND)
    with pytest.raises(Fenced):
        journal.drop(found)


def test_without_recording_only_the_end_is_written(store: MemoryState) -> None:
    journal = Journal(store, recording=False)
    record = journal.record(FIRST, "plan")
    assert store.items() == {}
    journal.finalize(record)
    assert store.items() == {"a": {"next": 5}, "b": {"next": 6}, "__epoch": 1}


def test_a_record_found_is_removed_even_if_this_pipeline_makes_none(journal: Journal, store: MemoryState) -> None:
    journal.record(FIRST, "plan")
    (found,) = journal.pending("app", "gen", of("node"))
    Journal(store, recording=False).finalize(found)
    assert not [key for key in store.items() if key.startswith("__pending:")]


def test_a_renamed_record_takes_the_place_of_the_old_one(journal: Journal) -> None:
    record = journal.record(FIRST, "plan")
    renamed = journal.rename(record, "other")
    (found,) = journal.pending("app", "gen", of("node"))
    assert found == renamed
    assert found.epoch.slices == FIRST.slices
    with pytest.raises(Fenced):
        journal.finalize(record)


def test_a_record_that_is_gone_cannot_be_renamed(journal: Journal) -> None:
    record = journal.record(FIRST, "plan")
    journal.drop(record)
    with pytest.raises(Fenced):
        journal.rename(record, "other")


def test_without_recording_a_stale_owner_is_fenced_too(store: MemoryState) -> None:
    store.put({"b": {"next": 1}})
    with pytest.raises(Fenced):
        Journal(store, recording=False).finalize(FOUND)


def test_a_number_is_never_used_again(journal: Journal) -> None:
    slow = epoch("slow", slice_("a", None, 1), number=1)
    recorded = journal.record(slow, "p")
    for number in (2, 3):  # another instance, with other keys of the same application
        quick = epoch(f"quick{number}", slice_(f"b{number}", None, 1), number=number)
        journal.finalize(journal.record(quick, "p"))
    journal.finalize(recorded)
    assert journal.next_number() == 4
