"""How the engine's calls reach a plugin: order, markers, bad rows, instances."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from streamling.connector import Offer, Room, Task
from streamling.errors import PermanentError, StreamlingError, UserError
from streamling.log_context import log_fields
from streamling.plugin import (
    ByColumns,
    Description,
    PluginError,
    SinkPlugin,
    SourcePlugin,
    TransformPlugin,
    register_sink,
    register_source,
    register_transform,
)
from streamling.plugin.nodes.source import PluginSource
from support.log_lines import log_lines
from support.plugin_nodes import EPOCH, SCHEMA, Place, batch, ids, processed

ROOM = Room(1000, 1, 1)


def with_operations(rows: pa.RecordBatch, *operations: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([rows.column("id"), pa.array(operations, pa.string())], ["id", "_gs_op"])


class Counting(SourcePlugin):
    """Gives the numbers of `options['rows']`, one at a time, and stores how far it got."""

    calls: ClassVar[list[str]] = []

    def __init__(self, context: Any, options: dict[str, str]) -> None:
        super().__init__(context, options)
        self.next = 0
        self.noted: dict[int, int] = {}

    def output_schema(self) -> pa.Schema:
        return SCHEMA

    async def initialize(self) -> None:
        self.next = self.context.state.get() or 0
        Counting.calls.append(f"initialize {self.next}")

    def is_running(self) -> bool:
        return self.next < int(self.options.get("rows", 3))

    def generate_batch(self) -> pa.RecordBatch:
        self.next += 1
        return batch(self.next - 1)

    async def process_checkpoint_marker(self, epoch: int) -> None:
        Counting.calls.append(f"marker {epoch} at {self.next}")
        self.noted[epoch] = self.next

    def process_checkpoint_finalizer(self, epoch: int) -> None:
        self.context.state.put(self.noted[epoch])

    def terminate(self) -> None:
        Counting.calls.append("terminate")


def everything(source: PluginSource) -> list[int]:
    found: list[int] = []
    while not source.ended:
        offer = source.offer(ROOM)
        found += ids(offer.batches) if offer else []
    return found


def test_a_source_gives_its_rows_and_ends(place: Place) -> None:
    register_source("own", Counting)
    source = place.source()
    assert everything(source) == [0, 1, 2]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source waits for the thread of its plugin, however busy the machine is."""
    monkeypatch.setattr("streamling.plugin.nodes.source._WAIT_S", 10.0)


@pytest.mark.usefixtures("patient")
def test_a_source_resumes_where_the_last_finalized_epoch_ended(place: Place) -> None:
    register_source("own", Counting)
    Counting.calls = []
    source = place.source("type: own, rows: 100000")
    first = source.offer(Room(10, 1, 1))
    assert first is not None
    assert source.mark(1) is None
    done = first.rows
    second = source.offer(Room(10, 1, 1))
    assert second is not None
    source.finalized(1)
    source.close()
    assert place.state.get("s") == done
    again = place.source("type: own, rows: 100000")
    third = again.offer(Room(1, 1, 1))
    assert third is not None and ids(third.batches)[0] == done
    assert f"marker 1 at {done}" in Counting.calls
    assert Counting.calls[-1] == f"initialize {done}"


def test_opening_a_source_again_makes_it_anew(place: Place) -> None:
    register_source("own", Counting)
    source = place.source()
    assert everything(source) == [0, 1, 2]
    source.open({})
    assert everything(source) == [0, 1, 2]


class Slow(SourcePlugin):
    """Generates when the test says so."""

    go = threading.Event()
    gives: ClassVar[list[pa.RecordBatch | None]] = []
    calls: ClassVar[list[str]] = []

    def output_schema(self) -> pa.Schema:
        return SCHEMA

    def generate_batch(self) -> pa.RecordBatch | None:
        assert Slow.go.wait(10)
        Slow.go.clear()
        return Slow.gives.pop(0)

    def process_checkpoint_marker(self, epoch: int) -> None:
        Slow.calls.append(f"marker {epoch}")

    def process_checkpoint_finalizer(self, epoch: int) -> None:
        Slow.calls.append(f"finalizer {epoch}")


def slow(place: Place, *gives: pa.RecordBatch | None) -> PluginSource:
    register_source("own", Slow)
    Slow.gives, Slow.calls = list(gives), []
    Slow.go.clear()
    return place.source()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def offered(source: PluginSource) -> Offer:
    found: list[Offer] = []
    until(lambda: found.append(offer) or True if (offer := source.offer(Room(1, 1, 1))) else False)
    return found[0]


def test_an_offer_does_not_wait_for_a_slow_plugin(place: Place) -> None:
    source = slow(place, batch(7))
    began = time.monotonic()
    assert source.offer(ROOM) is None
    assert time.monotonic() - began < 5
    Slow.go.set()
    assert ids(offered(source).batches) == [7]
    Slow.go.set()


def test_a_marker_that_meets_a_batch_under_way_waits_for_a_later_one(place: Place) -> None:
    """The plugin has counted rows that are in no epoch yet: its position must not be stored with this one."""
    source = slow(place, batch(7), batch(8))
    assert source.offer(ROOM) is None
    assert source.mark(1) is None
    source.finalized(1)
    Slow.go.set()
    assert ids(offered(source).batches) == [7]
    assert source.offer(ROOM) is None  # nothing is generated until the next marker has come
    assert Slow.calls == []
    assert source.mark(2) is None
    source.finalized(2)
    assert Slow.calls == ["marker 2", "finalizer 2"]
    Slow.go.set()
    assert ids(offered(source).batches) == [8]


def test_a_late_marker_is_passed_on_when_the_batch_under_way_is_empty(place: Place) -> None:
    source = slow(place, None, batch(8))
    assert source.offer(ROOM) is None
    assert source.mark(1) is None
    source.finalized(1)
    Slow.go.set()
    until(lambda: source.offer(ROOM) is None and Slow.calls == ["marker 1", "finalizer 1"])
    Slow.go.set()


def test_a_marker_that_never_came_gets_no_finalizer(place: Place) -> None:
    source = slow(place, None, batch(8))
    assert source.offer(ROOM) is None
    assert source.mark(1) is None
    source.finalized(1)
    assert source.mark(2) is None
    Slow.go.set()
    until(lambda: source.offer(ROOM) is None and Slow.calls)
    source.finalized(2)
    Slow.go.set()
    until(lambda: len(Slow.calls) > 1)
    assert Slow.calls == ["marker 2", "finalizer 2"]


def test_the_last_marker_waits_for_a_batch_under_way_so_that_it_need_not_come_again(place: Place) -> None:
    source = slow(place, batch(7))
    assert source.offer(ROOM) is None
    threading.Timer(0.4, Slow.go.set).start()
    late = source.mark(1, last=True)
    assert late is not None and ids(late.batches) == [7]
    source.finalized(1)
    assert Slow.calls == ["marker 1", "finalizer 1"]


def test_a_batch_that_comes_in_time_goes_into_the_epoch_of_the_marker(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = slow(place, batch(7))
    assert source.offer(ROOM) is None
    monkeypatch.setattr("streamling.plugin.nodes.source._WAIT_S", 10.0)
    Slow.go.set()
    late = source.mark(1)
    assert late is not None and ids(late.batches) == [7]
    assert Slow.calls == ["marker 1"]


def test_an_error_of_a_source_ends_the_run_and_is_not_tried_again(place: Place) -> None:
    class Broken(Counting):
        def generate_batch(self) -> pa.RecordBatch:
            raise ConnectionError("no route")

    register_source("own", Broken)
    source = place.source()
    with pytest.raises(PermanentError, match=r"own source 's': generate_batch failed: ConnectionError: no route"):
        everything(source)


@pytest.mark.parametrize(
    ("error", "kind", "hint"),
    [
        (PluginError("no"), PermanentError, None),
        (PluginError("no", user=True), UserError, None),
        (
            PluginError("no", retriable=True),
            PermanentError,
            "the plugin says that this error is transient: start again",
        ),
    ],
)
def test_plugin_errors_carry_what_the_plugin_says_of_them(
    place: Place, error: PluginError, kind: type[StreamlingError], hint: str | None
) -> None:
    class Broken(Counting):
        async def initialize(self) -> None:
            raise error

    register_source("own", Broken)
    with pytest.raises(kind) as found:
        place.source()
    assert (found.value.code, found.value.hint) == ("PLUGIN_FAILED", hint)
    assert found.value.retriable == error.retriable


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1], "generate_batch returned list, not a pyarrow.RecordBatch"),
        (pa.RecordBatch.from_pydict({"id": [1]}), "column '_gs_op' is missing"),
        (
            pa.RecordBatch.from_pydict({"id": [1], "_gs_op": ["i"], "x": [1]}),
            "returned the column 'x', which",
        ),
        (pa.RecordBatch.from_pydict({"id": ["x"], "_gs_op": ["i"]}), "column 'id' does not fit int64"),
    ],
)
def test_a_batch_that_does_not_fit_the_schema_is_an_error_that_names_what(
    place: Place, given: object, said: str
) -> None:
    class Odd(Counting):
        def generate_batch(self) -> Any:
            return given

    register_source("own", Odd)
    with pytest.raises(PermanentError, match=said):
        place.source().offer(ROOM)


class Doubling(TransformPlugin):
    """Doubles ids, refuses 3, and holds 4 back until the marker."""

    def __init__(self, context: Any, options: dict[str, str]) -> None:
        super().__init__(context, options)
        self.held: list[int] = []
        self.seen: list[list[int]] = []

    def output_schema(self) -> pa.Schema:
        return self.context.input_schema

    async def process_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        await asyncio.sleep(0)
        found = ids([rows])
        self.seen.append(found)
        if 3 in found:
            raise PluginError("bad", rows={found.index(3): "three is refused"})
        self.held = [i for i in found if i == 4] or self.held
        return batch(*(2 * i for i in found if i != 4))

    def process_checkpoint_marker(self, epoch: int) -> pa.RecordBatch:
        held, self.held = self.held, []
        return batch(*held)


def test_a_transform_sets_the_rows_aside_that_it_names_and_gets_the_others_again(place: Place) -> None:
    register_transform("own", Doubling)
    transform = place.transform()
    rows, bad = processed(transform, batch(1, 3, 4), batch(5))
    assert rows == [2, 10, 4]  # 4 was held back until the marker
    assert [(b.reason, b.message, b.row) for b in bad] == [
        ("plugin_error", "three is refused", {"id": 3, "_gs_op": "i"})
    ]


def test_an_operation_that_is_none_makes_a_bad_row(place: Place) -> None:
    class Odd(Doubling):
        async def process_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
            return with_operations(rows, "i", "x", None)

    register_transform("own", Odd)
    rows, bad = processed(place.transform(), batch(1, 2, 3))
    assert rows == [1]
    assert [(b.reason, b.message, b.row) for b in bad] == [
        (
            "unknown_operation",
            "process_batch: _gs_op is 'x'; it must be i, u or d",
            {"id": 2, "_gs_op": "x"},
        ),
        (
            "unknown_operation",
            "process_batch: _gs_op is null; it must be i, u or d",
            {"id": 3, "_gs_op": None},
        ),
    ]


@pytest.mark.usefixtures("patient")
def test_a_source_offers_rows_with_an_odd_operation_as_bad_ones(place: Place) -> None:
    class Odd(Counting):
        def generate_batch(self) -> Any:
            return with_operations(batch(1, 2), "u", "?")

    register_source("own", Odd)
    offer = place.source().offer(Room(2, 1, 1))
    assert offer is not None
    assert set(ids(offer.batches)) == {1}
    assert {(b.reason, b.message) for b in offer.bad_rows} == {
        ("unknown_operation", "generate_batch: _gs_op is '?'; it must be i, u or d")
    }


def test_a_batch_size_cuts_and_joins_batches(place: Place) -> None:
    register_transform("own", Doubling)
    transform = place.transform("type: own, batch_size: 4")
    assert processed(transform, batch(1, 2), batch(5, 6, 7, 8, 9))[0] == [2, 4, 10, 12, 14, 16, 18]
    plugin: Any = transform.group.instances[0].plugin
    assert plugin.seen == [[1, 2, 5, 6], [7, 8, 9]]


def test_rows_that_are_not_in_the_batch_cannot_be_refused(place: Place) -> None:
    class Odd(Doubling):
        async def process_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
            raise PluginError("odd", rows={7: "gone"})

    register_transform("own", Odd)
    with pytest.raises(PermanentError, match="names rows that are not in the batch"):
        processed(place.transform(), batch(1))


class Keeping(SinkPlugin):
    """Keeps rows by instance; they are durable at the marker."""

    kept: ClassVar[dict[int, list[int]]] = {}
    calls: ClassVar[list[str]] = []

    @classmethod
    def describe(cls, options: dict[str, str], input_schema: pa.Schema) -> Description:
        return Description(placement=ByColumns("id"))

    async def initialize(self) -> None:
        Keeping.kept[self.context.partition_index] = []

    async def process_batch(self, rows: pa.RecordBatch) -> None:
        found = ids([rows])
        if 3 in found:
            raise PluginError("bad", rows={found.index(3): "three"})
        Keeping.kept[self.context.partition_index] += found

    async def process_checkpoint_marker(self, epoch: int) -> None:
        Keeping.calls.append(f"marker {epoch} of {self.context.partition_index}")


def test_rows_of_one_key_go_to_one_instance_and_every_instance_gets_each_marker(place: Place) -> None:
    register_sink("own", Keeping, partitioned=True)
    Keeping.calls = []
    sink = place.sink("type: own, parallelism: 3")
    report = sink.write(EPOCH, Task(0, 0), [batch(*range(10, 40)), batch(*range(10, 40))])
    assert sink.commit(EPOCH, [report]) == 60
    assert sorted(Keeping.calls) == [f"marker 1 of {n}" for n in range(3)]
    assert sorted(i for kept in Keeping.kept.values() for i in kept) == sorted([*range(10, 40)] * 2)
    assert all(len(kept) == 2 * len(set(kept)) and kept for kept in Keeping.kept.values())


def test_a_sink_reports_the_rows_it_has_and_names_those_it_rejects(place: Place) -> None:
    register_sink("own", Keeping)
    sink = place.sink("type: own, on_error: skip")
    report = sink.write(EPOCH, Task(0, 0), [batch(1, 3), batch(5)])
    assert (report.rows, report.rejected, [b.message for b in report.bad_rows]) == (2, 1, ["three"])
    assert Keeping.kept[0] == [1, 5]


def test_a_sink_that_fails_sees_nothing_behind_a_row_it_rejects(place: Place) -> None:
    register_sink("own", Keeping)
    sink = place.sink()
    report = sink.write(EPOCH, Task(0, 0), [batch(1, 3), batch(5)])
    assert ([b.message for b in report.bad_rows], Keeping.kept[0]) == (["three"], [1])


def test_instances_made_before_one_that_fails_are_ended(place: Place) -> None:
    class Second(Keeping):
        ended: ClassVar[list[int]] = []

        def __init__(self, context: Any, options: dict[str, str]) -> None:
            super().__init__(context, options)
            if context.partition_index == 1:
                raise PluginError("no second one", user=True)

        def terminate(self) -> None:
            Second.ended.append(self.context.partition_index)

    register_sink("own", Second, partitioned=True)
    with pytest.raises(UserError, match="no second one"):
        place.sink("type: own, parallelism: 3")
    assert Second.ended == [0]


def test_methods_that_a_plugin_does_not_have_do_nothing(place: Place) -> None:
    class Bare:
        def __init__(self, context: object, options: dict[str, str]) -> None: ...

        def process_batch(self, rows: pa.RecordBatch) -> None: ...

    register_sink("own", Bare)
    sink = place.sink()
    assert sink.commit(EPOCH, [sink.write(EPOCH, Task(0, 0), [batch(1)])]) == 1
    sink.finalized(1)
    sink.close()


def test_calls_of_one_instance_never_overlap(place: Place) -> None:
    class Alone(Keeping):
        busy = 0

        async def process_batch(self, rows: pa.RecordBatch) -> None:
            await self._alone()

        async def process_checkpoint_finalizer(self, epoch: int) -> None:
            await self._alone()

        async def _alone(self) -> None:
            assert Alone.busy == 0
            Alone.busy += 1
            await asyncio.sleep(0.01)
            Alone.busy -= 1

    register_sink("own", Alone)
    sink = place.sink()
    hooks = [threading.Thread(target=sink.finalized, args=(n,)) for n in range(5)]
    for hook in hooks:
        hook.start()
    sink.write(EPOCH, Task(0, 0), [batch(n) for n in range(5)])
    for hook in hooks:
        hook.join()


def test_a_plugin_that_waits_for_ever_does_not_keep_the_run_from_closing(place: Place) -> None:
    class Waiting(Counting):
        async def generate_batch(self) -> pa.RecordBatch:
            await asyncio.Event().wait()
            raise AssertionError

    register_source("own", Waiting)
    source = place.source()
    assert source.offer(ROOM) is None
    began = time.monotonic()
    source.close()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("waits", [False, True])
def test_lines_that_a_plugin_logs_have_its_node_and_epoch(place: Place, waits: bool) -> None:
    class Telling(Keeping):
        def process_batch(self, rows: pa.RecordBatch) -> Any:
            self.context.logger.info("now")
            return self._later() if waits else None

        async def _later(self) -> None:
            await asyncio.sleep(0.01)
            self.context.logger.info("later")

    register_sink("own", Telling)
    sink = place.sink("type: own")
    with log_lines() as lines:
        for epoch in (7, 8):
            with log_fields(node="o", epoch=epoch):
                sink.write(EPOCH, Task(0, 0), [batch(1)])
    texts = ("now", "later") if waits else ("now",)
    assert [one for one in lines if one[0] in texts] == [(text, "o", epoch) for epoch in (7, 8) for text in texts]


def test_a_plugin_records_metrics_with_the_labels_of_its_node(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    class Measuring(Keeping):
        def labels(self) -> dict[str, str]:
            odd = {"id": "mine", "bad-name": "x", "long": "x" * 300}
            return {"queue": "q1", "file": "name\udcff", "team": "plugins", **odd}

        async def process_batch(self, rows: pa.RecordBatch) -> None:
            self.context.metrics.record_count("sent", rows.num_rows, {"kind": "a"})
            self.context.metrics.record_count_w_tags("sent", 1, [("kind", "a")])
            self.context.metrics.record_gauge("depth", 3)
            self.context.metrics.record_count("output_rows", 10)
            self.context.metrics.record_gauge("broken", "no number")  # type: ignore[arg-type]

    register_sink("own", Measuring)
    sink = place.sink("type: own, telemetry: {labels: {team: data, env: test}}")
    sink.write(EPOCH, Task(0, 0), [batch(1, 2)])
    found = {m.name: m for m in place.metrics.snapshot()}
    assert sorted(found) == ["streamling_depth", "streamling_sent"]
    assert found["streamling_sent"].value == 3
    assert dict(found["streamling_sent"].labels) == {
        "id": "o",
        "topology_node_type": "sink",
        "operator_type": "plugin",
        "type": "own",
        "env": "test",
        "team": "plugins",
        "queue": "q1",
        "file": "name?",
        "kind": "a",
    }
    assert "the plugin sets the label 'team' to 'plugins', which replaces 'data'" in caplog.text
    assert all(f"label '{key}' is dropped" in caplog.text for key in ("id", "bad-name", "long"))
