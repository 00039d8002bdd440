"""A sink that has another name after a crash cannot know what it has; that is refused."""

from __future__ import annotations

import pytest

from streamling.connector import Epoch, Slice
from streamling.engine.protocol.delivery import Outlet
from streamling.engine.protocol.pending import Journal
from streamling.engine.protocol.renames import check_names
from streamling.engine.protocol.state import MemoryState
from streamling.errors import PermanentError
from support.doubles import LedgerSink, plan_of

EPOCH = Epoch("e", 1, "app", "g", 0, 0, (Slice("numbers", "numbers:k", None, 4, (), 4),))


def outlets(**targets: str) -> list[Outlet]:
    made = []
    for node in plan_of(["numbers"], targets).sinks:
        sink = LedgerSink()
        sink.target = targets[node.ref]
        made.append(Outlet(node, sink, None))
    return made


def test_a_sink_renamed_while_an_epoch_is_interrupted_is_refused_until_it_has_its_name_again() -> None:
    store = MemoryState()
    journal = Journal(store, recording=True)
    check_names(store, outlets(one="a", two="b"))
    pending = journal.record(EPOCH, "plan")
    for _ in range(2):
        with pytest.raises(PermanentError, match="'new' writes to a, as 'one' did") as caught:
            check_names(store, outlets(new="a", two="b"))
        assert caught.value.hint == "name it 'one' again and start once, then rename it"
    check_names(store, outlets(two="b"))  # removed, not renamed
    with pytest.raises(PermanentError):
        check_names(store, outlets(new="a", two="b"))
    check_names(store, outlets(one="a", two="b", more="c"))
    journal.finalize(pending)
    check_names(store, outlets(new="a", two="b"))
    assert store.get("__sinks") == {"new": "a", "two": "b"}


def test_sinks_may_exchange_targets_and_share_them() -> None:
    store = MemoryState()
    check_names(store, outlets(one="a", two="a"))
    Journal(store, recording=True).record(EPOCH, "plan")
    check_names(store, outlets(one="a", two="b", three="c"))
