"""The data plane as far as it works without Spark: rows in the driver, processors and writers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamling.connector import (
    BadRow,
    Counted,
    Epoch,
    Placement,
    Report,
    SinkCapabilities,
    Slice,
    Task,
    Transform,
    TransformCapabilities,
    kinds,
)
from streamling.engine.data.dataflow import Dataflow
from streamling.engine.data.epoch_clock import EpochClock
from streamling.engine.data.exclusions import Exclusions
from streamling.engine.data.intake import Intake
from streamling.engine.data.report_book import ReportBook
from streamling.engine.data.results import EpochTooLarge
from streamling.engine.data.steps.write import WriteStep
from streamling.engine.protocol.bad_rows import BadRows
from streamling.engine.protocol.progress import Progress
from streamling.errors import SOURCE_FAILED, SPARK_FAILED, TransientError
from streamling.letters.store import letter_stores
from streamling.plan.pipeline import Plan, make_plan
from streamling.retry import retry
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from support.doubles import LedgerSink
from support.log_lines import log_lines

EPOCH = Epoch("e", 1, "app", "g", 0, 0, (Slice("numbers", "k", None, 4, (), 4),))


SCHEMA = pa.schema([pa.field("n", pa.int64(), False), pa.field("_gs_op", pa.string(), False)])


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), pa.array(["i"] * len(numbers))], schema=SCHEMA)


def intake(*batches: pa.RecordBatch) -> dict[str, Intake]:
    rows = sum(b.num_rows for b in batches)
    return {"numbers": Intake(EPOCH.slices, batches, Report(rows, bytes=sum(b.nbytes for b in batches)), rows)}


def plan_with_a_transform(policy: str = "skip") -> Plan:
    text = f"""
        sources: {{numbers: {{type: generator, columns: {{n: id}}, primary_key: n}}}}
        transforms: {{big: {{type: handler, from: numbers, primary_key: n, url: "http://x", on_error: {policy}}}}}
        sinks: {{out: {{type: blackhole, from: big}}}}
    """
    return make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))


@dataclass
class Tenfold(Transform):
    """Multiplies by ten, rejects 3, and counts its input. It is its own processor."""

    capabilities = TransformCapabilities(Placement.DRIVER, deterministic=True)
    before: Callable[[], None] = lambda: None
    times: int = 1
    """How often it yields each row."""
    calls: list[int] = field(default_factory=list)
    counts: list[Mapping[str, int]] = field(default_factory=list)

    def processor(self) -> Tenfold:
        return self

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        for given in batches:
            numbers = given.column(0).to_pylist()
            self.calls += numbers
            yield Counted("seen", len(numbers))
            yield from (BadRow("odd", "three", {}, row={"n": 3}) for n in numbers if n == 3)
            self.before()
            for _ in range(self.times):
                yield batch(*(10 * n for n in numbers if n != 3))

    def count(self, counts: Mapping[str, int]) -> None:
        logging.getLogger("streamling.tenfold").info("counted")
        self.counts.append(counts)


def dataflow(plan: Plan, transform: Transform, sink: LedgerSink) -> Dataflow:
    source: Any = SimpleNamespace(columns=plan.node("numbers").schema, select=None, reader=lambda: None)
    progress = Progress()
    progress.set_plan(plan)
    return Dataflow(
        session=None,
        plan=plan,
        sources={"numbers": source},
        transforms={"big": transform},
        sinks={"out": sink},
        bad_rows=BadRows(plan, "app", progress, letter_stores(plan, Settings())),
        retry=lambda action, what: retry(action, what=what, stopping=lambda: False, sleep=lambda seconds: None),
    )


def test_rows_pass_a_processor_and_reach_the_writer() -> None:
    plan, transform, sink = plan_with_a_transform(), Tenfold(), LedgerSink()
    flow, taken = dataflow(plan, transform, sink), intake(batch(1, 2), batch(3, 4))
    results = flow.compute(EPOCH, taken, wanted=plan.sinks)
    assert flow.write(plan.node("out"), results, Exclusions("out")) == [Report(3)]
    assert sink._staged == [10, 20, 40]
    assert results.row_counts == {"numbers": 4, "big": 3}
    rejects = flow.rejects(results, taken)
    assert (rejects["numbers"].report.rows, rejects["big"].report.rows, rejects["big"].report.rejected) == (4, 3, 1)
    assert [bad.row for bad in rejects["big"].bad_rows()] == [{"n": 3}]


def test_a_transform_hears_what_its_processors_have_counted() -> None:
    plan, transform, sink = plan_with_a_transform(), Tenfold(), LedgerSink()
    flow, taken = dataflow(plan, transform, sink), intake(batch(1, 2), batch(4))
    results = flow.compute(EPOCH, taken, wanted=plan.sinks)
    assert transform.counts == []
    with log_lines() as lines:
        flow.count({node: one.report for node, one in flow.rejects(results, taken).items()})
    assert transform.counts == [{"seen": 3}]
    assert lines == [("counted", "big", None)], "what it logs then has its name"


def test_a_store_that_is_away_while_rows_are_read_for_a_transform_is_tried_again() -> None:
    away = iter([True])

    def stumble() -> None:
        if next(away, False):
            raise TransientError(SOURCE_FAILED, "the store is away")

    plan, transform, sink = plan_with_a_transform(), Tenfold(stumble), LedgerSink()
    flow, taken = dataflow(plan, transform, sink), intake(batch(1), batch(3, 4))
    results = flow.compute(EPOCH, taken, wanted=plan.sinks)
    flow.write(plan.node("out"), results, Exclusions("out"))
    assert sink._staged == [10, 40]
    report = flow.rejects(results, taken)["big"].report
    assert (report.rows, report.rejected, report.counts) == (2, 1, {"seen": 3}), "the first attempt does not count"


def test_excluded_rows_do_not_reach_the_writer() -> None:
    plan, sink = plan_with_a_transform(), LedgerSink()
    flow = dataflow(plan, Tenfold(), sink)
    results = flow.compute(EPOCH, intake(batch(1, 2), batch(4, 5)), wanted=plan.sinks)
    exclusions = Exclusions("out")
    exclusions.add([BadRow("odd", "odd", {}, index=1), BadRow("odd", "odd", {}, index=2)])
    assert flow.write(plan.node("out"), results, exclusions) == [Report(2)]
    assert sink._staged == [10, 50]


def test_a_processor_that_gives_more_than_the_driver_should_hold_makes_an_epoch_too_large() -> None:
    plan, transform = plan_with_a_transform(), Tenfold(times=100)
    flow = dataflow(plan, transform, LedgerSink())
    taken = intake(*(batch(*range(10, 20)) for _ in range(10)))
    with pytest.raises(EpochTooLarge, match="'big': its rows"):
        flow.compute(EPOCH, taken, wanted=plan.sinks, max_bytes=20_000)
    assert len(transform.calls) < 100, "it is not asked for rows that are not kept"
    assert len(flow._reports) == 0
    results = flow.compute(EPOCH, taken, wanted=plan.sinks, max_bytes=None)
    assert results.rows("big").table().num_rows == 10_000


def test_rows_of_a_source_that_are_more_than_the_driver_should_hold_make_an_epoch_too_large() -> None:
    plan = plan_with_a_transform()
    flow = dataflow(plan, Tenfold(), LedgerSink())
    with pytest.raises(EpochTooLarge, match="'numbers': its rows"):
        flow.compute(EPOCH, intake(batch(*range(100))), wanted=plan.sinks, max_bytes=500)


def test_an_error_leaves_nothing_of_the_epoch_behind() -> None:
    def fail() -> None:
        raise ValueError("a mistake of ours")

    plan = plan_with_a_transform()
    flow = dataflow(plan, Tenfold(fail), LedgerSink())
    with pytest.raises(ValueError, match="a mistake of ours"):
        flow.compute(EPOCH, intake(batch(1)), wanted=plan.sinks)
    assert len(flow._reports) == 0


# Writing in executors


class Partitions:
    """Rows in executors, two partitions of two: stages run here, one partition after the other."""

    def __init__(self, *, attempts: int = 1) -> None:
        self._attempts = attempts
        self._stages: list[Any] = []

    def then(self, stage: Any) -> Partitions:
        self._stages.append(stage)
        return self

    def run(self, schema: str) -> Partitions:
        return self

    def toArrow(self) -> pa.Table:
        given: list[pa.RecordBatch] = []
        for partition, rows in ((1, batch(3, 4)), (0, batch(1, 2))):
            for attempt in range(self._attempts):
                batches: Iterator[pa.RecordBatch] = iter([rows])
                for stage in self._stages:
                    batches = stage.run(batches, partition, attempt)
                last = list(batches)
            given += last
        return pa.Table.from_batches(given)


class LocalAccumulator:
    def __init__(self, value: Any, param: Any) -> None:
        self._value, self._param = value, param

    def add(self, term: Any) -> None:
        self._param.addInPlace(self._value, term)


class Lost(LocalAccumulator):
    def add(self, term: Any) -> None:
        return


@dataclass
class LargeResults:
    """An epoch that executors have read; the driver can collect its rows too."""

    partitions: Partitions
    accumulator: type[LocalAccumulator] = LocalAccumulator
    large: bool = True
    in_process: bool = False
    epoch: Epoch = EPOCH
    row_counts: dict[str, int] = field(default_factory=dict)
    reports: ReportBook = field(default_factory=ReportBook)
    clock: EpochClock = field(default_factory=EpochClock)

    def note_execution(self, frame: object) -> None:
        return

    @property
    def session(self) -> Any:
        return SimpleNamespace(sparkContext=SimpleNamespace(accumulator=self.accumulator))

    def rows(self, node: str) -> Any:
        return SimpleNamespace(
            in_process=self.in_process, stages=self.partitions, batches=lambda: iter([batch(1, 2, 3, 4)])
        )


class Noting(LedgerSink):
    """Notes its tasks, and rejects 3."""

    def __init__(self, placement: Placement, *, discards: bool = False) -> None:
        super().__init__()
        self.capabilities = SinkCapabilities(placement, self.capabilities.guarantee, discards=discards)
        self.tasks: list[Task] = []

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        self.tasks.append(task)
        numbers = [n for given in batches for n in given.column(0).to_pylist()]
        bad = tuple(BadRow("odd", "three", {}, row={"n": 3}, index=i) for i, n in enumerate(numbers) if n == 3)
        return Report(len(numbers) - len(bad), len(bad), bad, detail=[task.partition, task.attempt])


def write_step(sink: LedgerSink) -> WriteStep:
    plan = plan_with_a_transform()
    return WriteStep(plan.node("out"), plan.node("big"), sink)


def test_of_a_large_epoch_executors_write_where_the_sink_allows_it() -> None:
    sink, results = Noting(Placement.ANY), LargeResults(Partitions())
    reports = write_step(sink).write(results, Exclusions("out"))
    assert [report.detail for report in reports] == [[0, 0], [1, 0]], "in the order of the rows"
    assert [(report.rows, report.rejected) for report in reports] == [(2, 0), (1, 1)]
    assert [bad.row for report in reports for bad in report.bad_rows] == [{"n": 3}]
    assert results.row_counts == {"big": 4}


@pytest.mark.parametrize(
    ("placement", "large", "in_process"),
    [(Placement.DRIVER, True, False), (Placement.ANY, False, False), (Placement.ANY, True, True)],
)
def test_elsewhere_one_writer_gets_all_rows(placement: Placement, large: bool, in_process: bool) -> None:
    sink = Noting(placement)
    results = LargeResults(Partitions(), large=large, in_process=in_process)
    (report,) = write_step(sink).write(results, Exclusions("out"))
    assert (report.rows, report.rejected, sink.tasks) == (3, 1, [Task(0, 0)])


def test_rows_without_those_that_were_rejected_are_written_by_one_writer() -> None:
    """Their numbers are those of all rows, in order."""
    sink, exclusions = Noting(Placement.ANY), Exclusions("out")
    exclusions.add([BadRow("odd", "three", {}, index=2)])
    (report,) = write_step(sink).write(LargeResults(Partitions()), exclusions)
    assert (report.rows, report.rejected) == (3, 0)


def test_the_reports_are_those_of_the_attempts_that_counted() -> None:
    sink = Noting(Placement.ANY)
    reports = write_step(sink).write(LargeResults(Partitions(attempts=3)), Exclusions("out"))
    assert len(sink.tasks) == 6
    assert [report.detail for report in reports] == [[0, 2], [1, 2]]


def test_an_epoch_whose_reports_did_not_arrive_is_written_again() -> None:
    with pytest.raises(TransientError, match="the report of partition 0 did not reach the driver") as caught:
        write_step(Noting(Placement.ANY)).write(LargeResults(Partitions(), Lost), Exclusions("out"))
    assert (caught.value.code, caught.value.node) == (SPARK_FAILED.code, "out")


def test_of_a_large_epoch_a_sink_that_drops_rows_gets_their_number_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WriteStep, "_count", lambda self, results, rows: 4)
    sink = Noting(Placement.ANY, discards=True)
    assert write_step(sink).write(LargeResults(Partitions()), Exclusions("out")) == [Report(4)]
    assert sink.tasks == []


def test_of_a_small_epoch_a_sink_that_drops_rows_gets_them_as_any_other() -> None:
    sink = Noting(Placement.ANY, discards=True)
    write_step(sink).write(LargeResults(Partitions(), large=False), Exclusions("out"))
    assert sink.tasks == [Task(0, 0)]
