"""An epoch is flushed to all sinks side by side, and is done when each of them has it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from doubles import LedgerSink, plan_of

from streamling import retry
from streamling.connector import BadRow, Epoch, Placement, Report, SinkCapabilities, Slice, Task, kinds
from streamling.engine.bad_rows import BadRows
from streamling.engine.delivery import Delivery, Outlet
from streamling.engine.progress import Progress
from streamling.engine.stop import StopRequest
from streamling.errors import SINK_FAILED, PermanentError, TransientError
from streamling.plan.pipeline import Plan, make_plan
from streamling.spec.pipeline import load_pipeline

EPOCH = Epoch("e", 1, "app", "g", 0, 0, (Slice("numbers", "k", None, 4, (), 4),))


class Frames:
    """Two rows, computed here; acks of two executors if they wrote."""

    def __init__(self, *, large: bool = False) -> None:
        self.large = large

    def batches(self, ref: str) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [1, 2]})

    def write(self, ref: str, writer: LedgerSink, epoch: Epoch) -> list[Report]:
        return [writer.write(epoch, Task(part, 0), self.batches(ref)) for part in range(2)]

    def count(self, ref: str) -> int:
        return 2


def outlets(**sinks: LedgerSink) -> list[Outlet]:
    plan = plan_of(["numbers"], sinks)
    return [Outlet(node, sinks[node.ref], None, None) for node in plan.sinks]


def flush(
    chosen: list[Outlet], frames: Frames | None = None, stop: StopRequest | None = None, plan: Plan | None = None
) -> None:
    context = SimpleNamespace(setLocalProperty=lambda *_: None, setJobGroup=lambda *_: None)
    plan, progress = plan or plan_of(["numbers"], [o.node.ref for o in chosen]), Progress()
    progress.planned(plan)
    bad_rows = BadRows(plan, "app", progress)
    delivery = Delivery(SimpleNamespace(sparkContext=context), chosen, stop or StopRequest(), progress, bad_rows)
    try:
        delivery.flush(EPOCH, frames or Frames(), chosen)
    finally:
        delivery.close()


class PickySink(LedgerSink):
    """Refuses the second row."""

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        super().write(epoch, task, batches)
        return Report(1, None, (BadRow("odd", "it is odd", {}, row={"n": 2}),))


def test_letters_are_stored_before_the_sink_is_done_with_their_epoch(tmp_path: Path) -> None:
    letters = f"on_error: dead_letter, dead_letter: {{type: file, path: '{tmp_path}'}}"
    text = (
        "sources: {numbers: {type: generator, columns: {n: id}, primary_key: n}}\n"
        f"sinks: {{out: {{type: postgres, from: numbers, schema: s, table: t, {letters}}}}}"
    )
    plan = make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))
    sink, seen = PickySink(), list[str]()
    sink.before_commit = lambda epoch: seen.extend(path.read_text() for path in tmp_path.glob("*.jsonl"))
    flush([Outlet(node, sink, None, None) for node in plan.sinks], plan=plan)
    (letter,) = seen
    assert json.loads(letter)["row"] == {"n": 2}


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
        assert re.search(rf"sink {name} has failed.*: {name} is gone", caplog.text)


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


@pytest.mark.parametrize(("placement", "writes"), [(Placement.ANY, 2), (Placement.DRIVER, 1)])
def test_of_a_large_epoch_executors_write_where_the_sink_allows_it(placement: Placement, writes: int) -> None:
    sink, tasks = LedgerSink(), []
    sink.capabilities = SinkCapabilities(placement, sink.capabilities.guarantee)
    write = sink.write

    def noted(epoch: Epoch, task: Task, batches: Iterator[pa.RecordBatch]) -> Report:
        tasks.append(task)
        return write(epoch, task, batches)

    sink.write = noted
    flush(outlets(out=sink), Frames(large=True))
    assert len(tasks) == writes


def test_of_a_large_epoch_a_sink_that_drops_rows_gets_their_number_only() -> None:
    sink, acks = LedgerSink(), []
    sink.capabilities = SinkCapabilities(Placement.NOWHERE, sink.capabilities.guarantee)

    def noted(epoch: Epoch, given: list[Report]) -> int:
        acks.extend(given)
        return 2

    sink.commit = noted
    flush(outlets(out=sink), Frames(large=True))
    assert acks == [Report(2)]
    assert sink.rows == []


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
