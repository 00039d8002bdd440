"""An epoch is flushed to all sinks in parallel, and is done when each of them has it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from streamling import retry
from streamling.connector import BadRow, Epoch, Report, SinkCapabilities, Slice, Task, kinds
from streamling.engine.data.epoch_clock import EpochClock
from streamling.engine.data.exclusions import Exclusions
from streamling.engine.data.results import EpochTooLarge
from streamling.engine.data.spark_errors import ProcessLost
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.bad_rows import BadRows
from streamling.engine.protocol.delivery import Delivery, Outlet, gravest
from streamling.engine.protocol.losses import Losses
from streamling.engine.protocol.progress import NodeProgress, Progress
from streamling.engine.protocol.steps import sink_counts
from streamling.errors import SINK_FAILED, SPARK_FAILED, BugError, PermanentError, TransientError
from streamling.letters.letter import RejectStage
from streamling.letters.store import letter_stores
from streamling.plan.pipeline import Plan, make_plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from support.doubles import LedgerSink, plan_of

EPOCH = Epoch("e", 1, "app", "g", 0, 0, (Slice("numbers", "k", None, 4, (), 4),))
RESULTS = SimpleNamespace(epoch=EPOCH, max_bytes=None, clock=EpochClock())


class Writes:
    """Lets sinks write batches of numbers: one writer for all of them, or one for each if executors write."""

    def __init__(self, chosen: Sequence[Outlet], *batches: Sequence[int], there: bool = False) -> None:
        self._sinks = {outlet.node.ref: outlet.sink for outlet in chosen}
        self._batches = [pa.RecordBatch.from_pydict({"n": list(numbers)}) for numbers in batches]
        self._there = there

    def write(
        self, node: PlannedNode, results: SimpleNamespace, exclusions: Exclusions, *, final: bool = True
    ) -> list[Report]:
        parts = [[batch] for batch in self._batches] if self._there else [self._batches]
        writer = self._sinks[node.ref].writer()
        return [writer.write(EPOCH, Task(n, 0, final), exclusions.filter(part)) for n, part in enumerate(parts)]

    def with_origins(self, node: PlannedNode, results: object, bad: Sequence[BadRow], _: object) -> tuple[BadRow, ...]:
        return tuple(bad)


def outlets(**sinks: LedgerSink) -> list[Outlet]:
    plan = plan_of(["numbers"], sinks)
    return [Outlet(node, sinks[node.ref], None) for node in plan.sinks]


def flush(
    chosen: list[Outlet],
    *batches: Sequence[int],
    there: bool = False,
    stop: StopRequest | None = None,
    plan: Plan | None = None,
    bad_rows: type[BadRows] = BadRows,
) -> dict[str, NodeProgress]:
    """By default the rows 1 and 2. Returns the progress of the nodes."""
    context = SimpleNamespace(setLocalProperty=lambda *_: None, setJobGroup=lambda *_: None)
    plan, progress = plan or plan_of(["numbers"], [o.node.ref for o in chosen]), Progress()
    progress.set_plan(plan)
    delivery = Delivery(
        session=SimpleNamespace(sparkContext=context),
        dataflow=Writes(chosen, *(batches or [[1, 2]]), there=there),
        outlets=chosen,
        stop=stop or StopRequest(),
        bad_rows=bad_rows(plan, "app", progress, letter_stores(plan, Settings())),
        max_same_rejects=1000,
    )
    try:
        delivery.flush(RESULTS, chosen)
    finally:
        delivery.close()
    for outlet in chosen:
        flushed = outlet.finalized()
        if flushed is not None:
            progress.meter(outlet.node.id).count(sink_counts(flushed, None))
    return {node.name: node for node in progress.snapshot().nodes}


def test_sinks_flush_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=5)
    one, two = LedgerSink(), LedgerSink()
    one.before_commit = two.before_commit = lambda epoch: meeting.wait()
    flush(outlets(one=one, two=two))
    assert one.rows == two.rows == [1, 2]


def test_sinks_with_one_target_flush_one_after_the_other_in_the_order_of_the_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    order: list[str] = []
    sinks = {name: LedgerSink() for name in ("zebra", "ant")}
    for name, sink in sinks.items():
        sink.target = "one table"
        sink.before_commit = lambda epoch, name=name: order.append(name)
    flush(outlets(**sinks))
    assert order == ["zebra", "ant"]
    assert "zebra, ant" in caplog.text


def test_sinks_flush_after_those_that_their_rows_refer_to(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    order: list[str] = []
    sinks = {name: LedgerSink() for name in ("toys", "children", "apart", "parents")}
    for name, sink in sinks.items():
        sink.target = name
        sink.before_commit = lambda epoch, name=name: order.append(name)
    sinks["toys"].depends_on = frozenset({"children", "elsewhere"})
    sinks["children"].depends_on = frozenset({"parents"})
    flush(outlets(**sinks))
    assert [name for name in order if name != "apart"] == ["parents", "children", "toys"]
    assert "parents, children, toys" in caplog.text


def test_sinks_that_refer_to_each_other_flush_in_the_order_of_the_file() -> None:
    order: list[str] = []
    sinks = {name: LedgerSink() for name in ("one", "two")}
    for name, sink in sinks.items():
        sink.target = name
        sink.depends_on = frozenset({"one", "two"} - {name})
        sink.before_commit = lambda epoch, name=name: order.append(name)
    flush(outlets(**sinks))
    assert order == ["one", "two"]


def test_a_sink_that_fails_does_not_keep_the_others_from_finishing() -> None:
    good, bad = LedgerSink(), LedgerSink()
    failed = threading.Event()

    def fail(epoch: Epoch) -> None:
        failed.set()
        raise PermanentError(SINK_FAILED, "no")

    bad.before_commit = fail
    good.before_commit = lambda epoch: failed.wait(5)
    with pytest.raises(PermanentError, match="no"):
        flush(outlets(bad=bad, good=good))
    assert good.rows == [1, 2]


def test_every_sink_that_fails_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    sinks, both = {name: LedgerSink() for name in ("one", "two")}, threading.Barrier(2, timeout=5)

    def fail(epoch: Epoch, name: str) -> None:
        both.wait()
        raise PermanentError(SINK_FAILED, f"{name} is gone")

    for name, sink in sinks.items():
        sink.before_commit = partial(fail, name=name)
    with pytest.raises(PermanentError):
        flush(outlets(**sinks))
    for name in sinks:
        assert re.search(rf"sink {name} failed;.*: {name} is gone", caplog.text)


def test_a_sink_is_in_trouble_while_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)
    sink, seen = LedgerSink(), list[str | None]()
    (outlet,) = outlets(out=sink)

    def fail_twice(epoch: Epoch) -> None:
        seen.append(outlet.trouble)
        if len(seen) < 3:
            raise TransientError(SINK_FAILED, f"not now {len(seen)}")

    sink.before_commit = fail_twice
    flush([outlet])
    assert [*seen, outlet.trouble] == [None, "not now 1", "not now 2", None]


def test_a_transient_failure_is_aborted_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)
    sink, failures = LedgerSink(), [TransientError(SINK_FAILED, "not now")]

    def fail_once(epoch: Epoch) -> None:
        if failures:
            raise failures.pop()

    sink.before_commit = fail_once
    flush(outlets(out=sink))
    assert sink.rows == [1, 2]
    assert sink.aborted == [EPOCH]


def test_a_stop_ends_the_attempts_of_a_failing_sink_and_the_pause_between_them() -> None:
    sink, stop = LedgerSink(), StopRequest()

    def fail(epoch: Epoch) -> None:
        threading.Timer(0.02, stop.request, kwargs={"drains": True}).start()
        raise TransientError(SINK_FAILED, "not now")

    sink.before_commit = fail
    began = time.monotonic()
    with pytest.raises(TransientError), pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "_FIRST_S", 5.0)
        flush(outlets(out=sink), stop=stop)
    assert time.monotonic() - began < 2


def test_an_outlet_knows_which_share_of_the_rows_arrives() -> None:
    (outlet,) = outlets(out=LedgerSink())
    assert outlet.share == 1.0
    flush([outlet])
    assert outlet.share == 0.5
    assert outlet.written == 2


def test_a_limit_is_reached_by_rows_written_and_zero_means_none() -> None:
    (outlet,) = outlets(out=LedgerSink())
    outlet.written = 5
    answers = []
    for limit in (None, 0, 6, 5, 4):
        outlet.limit = limit
        answers.append(outlet.limit_reached)
    assert answers == [False, False, False, True, True]
    outlet.limit, outlet.skipped = 6, 1
    assert outlet.limit_reached, "rows that the sink has skipped count as well"


def test_the_trouble_of_a_sink_that_retries_by_itself_is_shown() -> None:
    (outlet,) = outlets(out=(sink := LedgerSink()))
    sink.trouble = lambda: "answers 503"  # type: ignore[method-assign]
    assert outlet.trouble == "answers 503"


def test_a_sink_that_fails_ends_the_retries_inside_of_the_others() -> None:
    stop, patient, failing = StopRequest(), LedgerSink(), LedgerSink()
    begun = threading.Event()

    def wait(epoch: Epoch) -> None:
        begun.set()
        stop.pause_retries(60)
        raise TransientError(SINK_FAILED, "still no answer")

    def fail(epoch: Epoch) -> None:
        begun.wait(10)
        raise PermanentError(SINK_FAILED, "broken")

    patient.before_commit, failing.before_commit = wait, fail
    began = time.monotonic()
    with pytest.raises(PermanentError, match="broken"):
        flush(outlets(patient=patient, failing=failing), stop=stop)
    assert time.monotonic() - began < 10


# Epochs that are too large


def test_an_epoch_that_is_too_large_for_one_sink_is_no_failure_and_the_others_finish(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, small = LedgerSink(), LedgerSink()
    too_large = threading.Event()

    def refuse(epoch: Epoch) -> None:
        too_large.set()
        raise EpochTooLarge("numbers", "its rows are more than 1 MB")

    small.before_commit = refuse
    good.before_commit = lambda epoch: too_large.wait(5)
    with pytest.raises(EpochTooLarge):
        flush(outlets(small=small, good=good))
    assert good.rows == [1, 2]
    assert small.aborted == [EPOCH]
    assert "failed" not in caplog.text


@pytest.mark.parametrize("order", [("small", "broken"), ("broken", "small")])
def test_an_error_beside_an_epoch_that_is_too_large_ends_the_run(order: tuple[str, str]) -> None:
    both = threading.Barrier(2, timeout=5)
    errors = {
        "small": EpochTooLarge("numbers", "its rows are more than 1 MB"),
        "broken": PermanentError(SINK_FAILED, "no"),
    }

    def fail(epoch: Epoch, name: str) -> None:
        both.wait()
        raise errors[name]

    sinks = {name: LedgerSink() for name in order}
    for name, sink in sinks.items():
        sink.before_commit = partial(fail, name=name)
    with pytest.raises(PermanentError, match="no"):
        flush(outlets(**sinks))


@pytest.mark.parametrize(("divisible", "attempts", "end"), [(True, 3, EpochTooLarge), (False, 6, PermanentError)])
def test_an_epoch_that_ends_its_workers_again_and_again_is_cut_or_ends_the_run(
    divisible: bool, attempts: int, end: type[Exception]
) -> None:
    losses, lost = Losses("out"), ProcessLost(SPARK_FAILED, "a worker is gone")

    def lose() -> None:
        raise lost

    for _ in range(attempts - 1):
        with pytest.raises(ProcessLost):
            losses.guard(lose, divisible=divisible)
    with pytest.raises(end):
        losses.guard(lose, divisible=divisible)


def test_an_error_that_may_pass_does_not_end_an_epoch_that_is_cut_smaller() -> None:
    away, too_large = TransientError(SINK_FAILED, "away"), EpochTooLarge("numbers", "its rows are many")
    broken = PermanentError(SINK_FAILED, "broken")
    assert gravest([away, too_large]) is too_large
    assert gravest([too_large, broken, away]) is broken
    assert gravest([away]) is away


# Rows that a sink rejects


class Picky(LedgerSink):
    """Rejects some numbers, at most so many at a time, and records its calls and those that store its letters."""

    def __init__(self, *rejected: int, at_once: int = 1000, transactional: bool = False) -> None:
        super().__init__()
        self.capabilities = SinkCapabilities(guarantee=self.capabilities.guarantee, transactional=transactional)
        self.calls: list[str] = []
        self._rejects = rejected
        self._at_once = at_once
        self._kept: list[int] = []

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        numbers = [n for batch in batches for n in batch.column(0).to_pylist()]
        self.calls.append(f"write {numbers}")
        chosen = [index for index, n in enumerate(numbers) if n in self._rejects][: self._at_once]
        bad = tuple(BadRow("odd", f"{numbers[i]} is odd", {}, row={"n": numbers[i]}, index=i) for i in chosen)
        self._kept += [n for i, n in enumerate(numbers) if i not in chosen]
        return Report(len(numbers) - len(bad), len(bad), bad)

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        self.calls.append("commit")
        self._staged = self._kept
        return super().commit(epoch, reports)

    def abort(self, epoch: Epoch) -> None:
        self.calls.append("abort")
        self._kept = []
        super().abort(epoch)


def picky(sink: Picky, policy: str = "skip") -> tuple[list[Outlet], Plan]:
    text = (
        "sources: {numbers: {type: generator, columns: {n: id}, primary_key: n}}\n"
        f"sinks: {{out: {{type: postgres, from: numbers, schema: s, table: t, on_error: {policy}}}}}"
    )
    plan = make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))
    return [Outlet(node, sink, None) for node in plan.sinks], plan


def into(path: Path) -> str:
    return f"dead_letter, dead_letter: {{type: file, path: '{path}'}}"


def letters(path: Path) -> list[int]:
    return [json.loads(line)["row"]["n"] for file in path.glob("*.jsonl") for line in file.read_text().splitlines()]


def noting(sink: Picky) -> type[BadRows]:
    """Records among the calls of the sink when its letters are durable."""

    class Noting(BadRows):
        def store_letters(self, epoch: Epoch, node: str, stage: RejectStage, rows: Iterator[BadRow]) -> int:
            kept = list(rows)
            number = super().store_letters(epoch, node, stage, iter(kept))
            if kept:
                sink.calls.append(f"letters {[bad.row['n'] for bad in kept]}")
            return number

    return Noting


def test_letters_are_stored_before_the_sink_is_done_with_their_epoch(tmp_path: Path) -> None:
    sink = Picky(2)
    chosen, plan = picky(sink, into(tmp_path))
    flush(chosen, plan=plan, bad_rows=noting(sink))
    assert sink.calls == ["write [1, 2]", "letters [2]", "commit"]
    assert (sink.rows, letters(tmp_path)) == ([1], [2])


def test_no_letters_are_stored_while_a_sink_holds_its_transaction(tmp_path: Path) -> None:
    sink = Picky(2, transactional=True)
    chosen, plan = picky(sink, into(tmp_path))
    passed = flush(chosen, [1, 2, 3], plan=plan, bad_rows=noting(sink))
    assert sink.calls == ["write [1, 2, 3]", "abort", "letters [2]", "write [1, 3]", "commit"]
    assert (sink.rows, letters(tmp_path)) == ([1, 3], [2])
    assert (passed["out"].rows_in, passed["out"].rows_out) == (3, 2)
    assert [bad.row for bad in chosen[0].bad_rows] == [{"n": 2}]


def test_a_transactional_sink_that_rejects_nothing_writes_once(tmp_path: Path) -> None:
    sink = Picky(transactional=True)
    chosen, plan = picky(sink, into(tmp_path))
    flush(chosen, plan=plan, bad_rows=noting(sink))
    assert sink.calls == ["write [1, 2]", "commit"]


def test_a_sink_may_find_the_rows_it_rejects_one_after_the_other(tmp_path: Path) -> None:
    sink = Picky(0, 3, 4, 7, 9, at_once=2, transactional=True)
    chosen, plan = picky(sink, into(tmp_path))
    flush(chosen, [0], [1, 2, 3, 4, 5], [], [6, 7, 8], [9], plan=plan, bad_rows=noting(sink))
    assert sink.calls == [
        "write [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
        "abort",
        "letters [0, 3]",
        "write [1, 2, 4, 5, 6, 7, 8, 9]",
        "abort",
        "letters [0, 3, 4, 7]",
        "write [1, 2, 5, 6, 8, 9]",
        "abort",
        "letters [0, 3, 4, 7, 9]",
        "write [1, 2, 5, 6, 8]",
        "commit",
    ]
    assert sink.rows == [1, 2, 5, 6, 8]
    assert letters(tmp_path) == [0, 3, 4, 7, 9]
    assert len(chosen[0].bad_rows) == 5


@pytest.mark.parametrize("transactional", [True, False])
def test_a_sink_that_rejects_every_row_commits_an_epoch_without_rows(tmp_path: Path, transactional: bool) -> None:
    sink = Picky(1, 2, transactional=transactional)
    chosen, plan = picky(sink, into(tmp_path))
    flush(chosen, plan=plan)
    assert (sink.calls[-1], sink.rows, letters(tmp_path)) == ("commit", [], [1, 2])


@pytest.mark.parametrize("transactional", [True, False])
def test_a_rejected_row_that_is_skipped_leaves_no_letter(tmp_path: Path, transactional: bool) -> None:
    sink = Picky(2, transactional=transactional)
    chosen, plan = picky(sink)
    flush(chosen, [1, 2, 3], plan=plan)
    assert sink.rows == [1, 3]
    assert [bad.row for bad in chosen[0].bad_rows] == [{"n": 2}]


@pytest.mark.parametrize("transactional", [True, False])
def test_a_rejected_row_ends_the_run_where_rows_must_be_good(transactional: bool) -> None:
    sink = Picky(2, transactional=transactional)
    chosen, plan = picky(sink, "fail")
    with pytest.raises(PermanentError, match=re.escape('2 is odd; row: {"n": 2}')):
        flush(chosen, plan=plan)
    assert sink.calls == ["write [1, 2]", "abort"]


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_rows_that_writers_in_executors_reject_are_set_aside_too(tmp_path: Path, policy: str) -> None:
    sink = Picky(2, 3, 6)
    chosen, plan = picky(sink, into(tmp_path) if policy == "dead_letter" else policy)
    flush(chosen, [1, 2, 3], [4, 5, 6], there=True, plan=plan, bad_rows=noting(sink))
    assert sink.rows == [1, 4, 5]
    assert [bad.row for bad in chosen[0].bad_rows] == [{"n": 2}, {"n": 3}, {"n": 6}]
    stored = [2, 3, 6] if policy == "dead_letter" else []
    assert sorted(letters(tmp_path)) == stored
    assert sink.calls.index("commit") == len(sink.calls) - 1


def test_a_row_that_a_writer_in_an_executor_rejects_ends_the_run_where_rows_must_be_good() -> None:
    sink = Picky(6)
    chosen, plan = picky(sink, "fail")
    with pytest.raises(PermanentError, match="6 is odd"):
        flush(chosen, [1, 2, 3], [4, 5, 6], there=True, plan=plan)
    assert "commit" not in sink.calls


def test_a_writer_that_rejects_rows_without_naming_them_is_a_bug_and_nothing_is_lost() -> None:
    sink = Picky()
    sink.write = lambda epoch, task, batches: Report(rows=1, rejected=1)
    chosen, plan = picky(sink)
    with pytest.raises(BugError, match="lacks some of the rows it rejects"):
        flush(chosen, plan=plan)
    assert sink.calls == ["abort"]


def test_a_transactional_sink_has_to_say_which_rows_it_rejects() -> None:
    sink = Picky(transactional=True)
    sink.write = lambda epoch, task, batches: Report(1, 1, (BadRow("odd", "odd", {}),))
    chosen, plan = picky(sink)
    with pytest.raises(BugError, match="a bad row has no index"):
        flush(chosen, plan=plan)
    assert "commit" not in sink.calls


@pytest.mark.parametrize("transactional", [True, False])
def test_an_epoch_that_is_tried_again_has_its_rejected_rows_once(
    tmp_path: Path, transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)
    sink, failures = Picky(2, transactional=transactional), [TransientError(SINK_FAILED, "not now")]

    def fail_once(epoch: Epoch) -> None:
        if failures:
            raise failures.pop()

    sink.before_commit = fail_once
    chosen, plan = picky(sink, into(tmp_path))
    passed = flush(chosen, [1, 2, 3], plan=plan)
    assert (sink.rows, letters(tmp_path)) == ([1, 3], [2])
    assert len(chosen[0].bad_rows) == 1
    assert (passed["out"].rows_in, passed["out"].rows_out) == (3, 2)


def test_letters_stay_when_the_answer_to_a_commit_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink has the epoch, and rejects none of the rows when they are written again."""
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)

    class Forgetful(Picky):
        def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
            written = super().commit(epoch, reports)
            if self.calls.count("commit") == 1:
                raise TransientError(SINK_FAILED, "the connection is gone")
            return written

        def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
            if "commit" in self.calls:
                return Report(2)
            return super().write(epoch, task, batches)

    sink = Forgetful(2, transactional=True)
    chosen, plan = picky(sink, into(tmp_path))
    flush(chosen, [1, 2, 3], plan=plan)
    assert (sink.rows, letters(tmp_path)) == ([1, 3], [2])
    assert [bad.row for bad in chosen[0].bad_rows] == [{"n": 2}]


def test_letters_that_cannot_be_stored_at_once_are_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)
    sink, failures = Picky(2, transactional=True), [TransientError(SINK_FAILED, "the disk is away")]

    class Stumbling(noting(sink)):
        def store_letters(self, epoch: Epoch, node: str, stage: RejectStage, rows: Iterator[BadRow]) -> int:
            if failures:
                raise failures.pop()
            return super().store_letters(epoch, node, stage, rows)

    chosen, plan = picky(sink, into(tmp_path))
    flush(chosen, plan=plan, bad_rows=Stumbling)
    assert (sink.rows, letters(tmp_path)) == ([1], [2])
    assert sink.calls[-4:] == ["abort", "letters [2]", "write [1]", "commit"]


def test_rows_rejected_of_one_epoch_are_not_missing_in_the_next() -> None:
    sink = Picky(2, transactional=True)
    chosen, plan = picky(sink)
    flush(chosen, plan=plan)
    sink.positions.clear()
    flush(chosen, [5, 6, 7], plan=plan)
    assert sink.calls[-2:] == ["write [5, 6, 7]", "commit"]
    assert chosen[0].bad_rows == ()
