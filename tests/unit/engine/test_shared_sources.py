"""Several processes divide the keys of a source among themselves, and each row is delivered once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from streamling.connector import Applied, Epoch, Report, SourceCapabilities
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.state import MemoryState
from support.doubles import Crash, LedgerSink, NumberSource, Rig, until

THERE = 40
ONE_AT_A_TIME = threading.RLock()


class SharedNumbers(NumberSource):
    """The keys `a` and `b`, of which a process has those assigned to it."""

    capabilities = SourceCapabilities(shared=True)

    def __init__(self, *mine: str) -> None:
        super().__init__(there=THERE, chunk=5, ends=False, keys=("a", "b"))
        self.all = frozenset(self.keys)
        self.mine = frozenset(f"numbers:{key}" for key in mine)
        self.owned: list[frozenset[str]] = []
        self.changed: Callable[[], None] = lambda: None
        self.keys = []

    def join(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def assigned(self) -> frozenset[str]:
        return self.mine

    def own(self, keys: frozenset[str]) -> None:
        self.owned.append(keys)
        self.keys = sorted(keys)

    def give(self, *mine: str) -> None:
        self.mine = frozenset(f"numbers:{key}" for key in mine)
        self.changed()


class View(LedgerSink):
    """The view of one process on a table: what it stages is its own, the rest is shared. Commits are atomic."""

    def __init__(self, table: LedgerSink) -> None:
        super().__init__()
        self.positions, self.rows, self.abandoned = table.positions, table.rows, table.abandoned
        self._table = table

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        self._table.before_commit(epoch)
        with ONE_AT_A_TIME:
            return super().commit(epoch, reports)

    def abandon(self, epoch: Epoch) -> Applied:
        with ONE_AT_A_TIME:
            return super().abandon(epoch)


class Process:
    """A loop in a thread, over a state and a sink shared with others."""

    def __init__(self, source: SharedNumbers, store: MemoryState, sink: LedgerSink) -> None:
        self.source, self.stop = source, StopRequest()
        self.rig = Rig({"numbers": source}, {"out": View(sink)}, store=store, stop=self.stop)
        source.join(self.stop.wake)
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.rig.run()
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        self.stop.request(drains=True)
        self.thread.join(10)
        assert not self.thread.is_alive()
        if self.failure is not None and not isinstance(self.failure, Crash):
            raise self.failure


def delivered(sink: LedgerSink, times: int = 2) -> bool:
    return len(sink.rows) >= times * THERE


def test_keys_that_come_are_read_and_keys_that_go_are_not() -> None:
    store, sink = MemoryState(), LedgerSink()
    source = SharedNumbers()
    process = Process(source, store, sink)
    until(lambda: source.owned != [])
    assert sink.rows == []
    source.give("a")
    until(lambda: len(sink.rows) == THERE)
    source.give("b")
    until(lambda: delivered(sink))
    process.end()
    assert sorted(sink.rows) == sorted([*range(THERE)] * 2)
    assert source.owned == [frozenset(), {"numbers:a"}, {"numbers:b"}]


def test_a_key_changes_hands_between_two_epochs() -> None:
    store, sink = MemoryState(), LedgerSink()
    first, second = SharedNumbers("a", "b"), SharedNumbers()
    one, two = Process(first, store, sink), Process(second, store, sink)
    until(lambda: len(sink.rows) > 5)
    first.give("a")
    until(lambda: first.owned[-1] == {"numbers:a"})
    second.give("b")
    until(lambda: delivered(sink))
    one.end()
    two.end()
    assert sorted(sink.rows) == sorted([*range(THERE)] * 2)
    assert not [key for key in store.items() if key.startswith("__pending")]


def test_an_owner_that_lost_a_key_in_the_middle_of_an_epoch_moves_nothing() -> None:
    """It is suspended before its commit while the next owner takes over the key; then it wakes up."""
    store, sink = MemoryState(), LedgerSink()
    held, free = threading.Event(), threading.Event()

    def wait(epoch: Epoch) -> None:
        sink.before_commit = lambda epoch: None
        held.set()
        free.wait(10)

    sink.before_commit = wait
    slow = SharedNumbers("a", "b")
    one = Process(slow, store, sink)
    held.wait(10)
    slow.mine = frozenset({"numbers:a"})  # it does not notice: it is suspended
    other = SharedNumbers("b")
    two = Process(other, store, sink)
    until(lambda: len(sink.rows) >= THERE)
    free.set()
    until(lambda: delivered(sink))
    one.end()
    two.end()
    assert sorted(sink.rows) == sorted([*range(THERE)] * 2)


def test_a_crashed_owners_epoch_is_settled_by_those_who_get_its_keys() -> None:
    store, sink = MemoryState(), LedgerSink()

    def die(epoch: Epoch) -> None:
        sink.before_commit = lambda epoch: None
        raise Crash

    sink.before_commit = die
    one = Process(SharedNumbers("a", "b"), store, sink)
    one.thread.join(10)
    assert isinstance(one.failure, Crash)
    assert {key for key in store.items() if key.startswith("__pending")} == {
        "__pending:numbers:a",
        "__pending:numbers:b",
    }
    two = Process(SharedNumbers("b"), store, sink)
    until(lambda: len(sink.rows) == THERE)
    two.end()
    assert "__pending:numbers:a" in store.items()
    three = Process(SharedNumbers("a"), store, sink)
    until(lambda: delivered(sink))
    three.end()
    assert sorted(sink.rows) == sorted([*range(THERE)] * 2)
