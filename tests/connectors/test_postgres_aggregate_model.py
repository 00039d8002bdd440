"""The aggregate tables compared with a model: random changes, epochs that are aborted, replayed or written by another
process, and two processes at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from streamling.connector import Epoch
from streamling.sinks.postgres_aggregate.sink import PostgresAggregateSink
from support.aggregate_samples import BY_ACCOUNT, EVERYTHING, PAYMENTS, aggregate_sink, totals
from support.postgres_samples import TASK, batch, epoch, write
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

Payment = tuple[int, str | None, int | None, str]
ACCOUNTS = ("alice", "bob", "carol", "dora")
BATCH_SIZE = 4
MODES = {"counting": ", deduplicate: false", "deduplicating": "", "retracting": ", retract: true"}


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def pieces(rows: Sequence[Payment], size: int) -> Iterator[Sequence[Payment]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


class Model:
    """What the tables should hold."""

    def __init__(self, mode: str, groups: bool) -> None:
        self._mode = mode
        self._groups = groups
        self._counted: list[tuple[str, int | None, str]] = []  # account, amount, operation
        self._rows: dict[int, tuple[str, int | None]] = {}

    def add(self, rows: Sequence[Payment]) -> None:
        for key, account, amount, operation in self._effective(rows):
            if operation == "d":
                self._rows.pop(key, None)
            else:
                self._rows[key] = (account or "", amount)
            self._counted.append((account or "", amount, operation))

    def totals(self) -> list[tuple[object, ...]]:
        changes = self._counted
        if self._mode == "retracting":
            changes = [(account, amount, "i") for account, amount in self._rows.values()]
        seen = self._counted if not self._groups else changes
        groups = sorted({account if self._groups else "value" for account, *_ in seen})
        return [(group, *self._computed(group, changes)) for group in groups]

    def _computed(self, group: str, changes: Sequence[tuple[str, int | None, str]]) -> Iterator[object]:
        mine = [(amount, op) for account, amount, op in changes if not self._groups or account == group]
        total = sum(-(amount or 0) if op == "d" else amount or 0 for amount, op in mine)
        count = sum({"i": 1, "u": 0, "d": -1}[op] for _, op in mine)
        known = [amount for amount, _ in mine if amount is not None]
        yield from (total, count, total, count, min(known, default=None), max(known, default=None))

    def _effective(self, rows: Sequence[Payment]) -> Iterator[Payment]:
        if self._mode != "deduplicating":
            yield from rows
            return
        for piece in pieces(rows, BATCH_SIZE):
            for place, row in enumerate(piece):
                later = [other for other in piece[place + 1 :] if other[0] == row[0]]
                if not later or later[0][3] != row[3]:
                    yield row


class Epochs:
    """Writes random epochs to a sink in all the ways that may happen, each of which counts once."""

    def __init__(self, database: Database, options: str, model: Model, seed: int) -> None:
        self._database = database
        self._options = options
        self._model = model
        self._random = random.Random(seed)
        self._position = 0
        self._stack = ExitStack()
        self._sinks = [self._open(), self._open()]

    def __enter__(self) -> Epochs:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def step(self) -> None:
        rows = [self._row() for _ in range(self._random.choice((0, 1, 3, 12, 40)))]
        sink = self._random.choice(self._sinks)
        self._position += 1
        next_ = epoch(self._position - 1, self._position, number=self._position)
        match self._random.randrange(5):
            case 0:  # written, not committed; then again under another id
                sink.write(next_, TASK, [batch(rows, PAYMENTS)] if rows else [])
                sink.abort(next_)
                next_ = epoch(self._position - 1, self._position, number=self._position)
            case 1:  # the process is gone before its commit, and another one is in its place
                sink.write(next_, TASK, [batch(rows, PAYMENTS)] if rows else [])
                sink.close()
                self._sinks.remove(sink)
                sink = self._open()
                self._sinks.append(sink)
            case 2:
                sink.finalized(self._position - 1)
        self._write(sink, rows, next_)
        self._model.add(rows)
        if self._random.random() < 0.3:  # replayed, by this process or another
            again = epoch(self._position - 1, self._position, number=self._position + 1)
            self._write(self._random.choice(self._sinks), rows, again)

    def _write(self, sink: PostgresAggregateSink, rows: Sequence[Payment], into: Epoch) -> None:
        write(sink, rows, into, PAYMENTS)

    def _open(self) -> PostgresAggregateSink:
        settings = {"batch_size": BATCH_SIZE, "checkpoint_interval_sec": 0}
        return self._stack.enter_context(aggregate_sink(self._database, self._options, **settings))

    def _row(self) -> Payment:
        amount = self._random.choice((None, *range(-20, 21)))
        operation = self._random.choice("iiuud")
        bare = "retract" in self._options and operation == "d"  # a deletion may have its key only
        return (self._random.randrange(12), None if bare else self._random.choice(ACCOUNTS), amount, operation)


@pytest.mark.parametrize("groups", [BY_ACCOUNT, ""], ids=["groups", "global"])
@pytest.mark.parametrize("mode", MODES)
def test_aggregates_equal_the_model(database: Database, mode: str, groups: str) -> None:
    model = Model(mode, bool(groups))
    with Epochs(database, groups + EVERYTHING + MODES[mode], model, seed=len(mode) + len(groups)) as epochs:
        for number in range(50):
            epochs.step()
            assert totals(database) == model.totals(), f"after {number + 1} epochs"


@pytest.mark.parametrize("mode", ["counting", "retracting"])
def test_two_processes_may_change_the_same_groups(database: Database, mode: str) -> None:
    """Their keys differ, their groups do not, and come in any order, in several statements per epoch."""
    model = Model(mode, groups=True)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        choose = random.Random(number)
        rows: list[Payment] = [
            (2 * choose.randrange(30) + number, choose.choice(ACCOUNTS), choose.randrange(100), choose.choice("iud"))
            for _ in range(1000)
        ]
        model.add(rows)
        try:
            with aggregate_sink(database, BY_ACCOUNT + EVERYTHING + MODES[mode], checkpoint_interval_sec=0) as sink:
                for position, piece in enumerate(pieces(rows, 20), start=1):
                    write(sink, piece, epoch(position - 1, position, key=f"rows:{number}", number=position), PAYMENTS)
                    sink.finalized(position)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert totals(database) == model.totals()
    assert database.rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]
