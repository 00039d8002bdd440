"""A stateless transform of a plugin goes where the rows are: one instance in every process that has some."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from streamling.connector import Counted, Placement
from streamling.errors import PermanentError, StreamlingError, UserError
from streamling.plugin import ByColumns, Description, PluginError, TransformPlugin, register_transform
from streamling.plugin.loading import load_plugins
from streamling.plugin.nodes import processor as module
from streamling.plugin.nodes.processor import StatelessTransform
from streamling.plugin.nodes.transform import PluginTransform
from support.plugin_files import settings, write_plugin
from support.plugin_nodes import EPOCH, Place, batch, ids, processed


class Doubling(TransformPlugin):
    """Doubles ids, and rejects 3."""

    stateless = True
    made: ClassVar[list[Doubling]] = []

    def __init__(self, context: Any, options: dict[str, str]) -> None:
        super().__init__(context, options)
        self.calls: list[object] = []

    def output_schema(self) -> pa.Schema:
        return self.context.input_schema

    async def initialize(self) -> None:
        self.calls.append("initialize")
        Doubling.made.append(self)

    def process_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        found = ids([rows])
        self.calls.append(found)
        if 3 in found:
            raise PluginError("bad", rows={found.index(3): "three is rejected"})
        self.context.metrics.record_count("doubled", rows.num_rows)
        return batch(*(2 * number for number in found))

    def terminate(self) -> None:
        self.calls.append("terminate")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    Doubling.made.clear()
    yield
    assert not module._instances, "a test has not closed its transform"


@pytest.fixture
def doubling(place: Place) -> Iterator[StatelessTransform]:
    register_transform("own", Doubling)
    transform = place.transform()
    assert isinstance(transform, StatelessTransform)
    yield transform
    transform.close()


def test_a_stateless_transform_may_run_anywhere_and_twice(doubling: StatelessTransform) -> None:
    assert doubling.capabilities.placement is Placement.ANY
    assert doubling.capabilities.deterministic


def test_one_that_asks_something_outside_says_that_it_must_not_be_asked_twice(place: Place) -> None:
    class Asking(Doubling):
        deterministic = False

    register_transform("own", Asking)
    transform = place.transform()
    assert not transform.capabilities.deterministic
    transform.close()


def test_one_without_our_base_class_can_be_stateless_too(place: Place) -> None:
    class Bare:
        stateless = True

        def __init__(self, context: Any, options: dict[str, str]) -> None:
            self.schema = context.input_schema

        def output_schema(self) -> pa.Schema:
            return self.schema

        def process_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
            return rows

    register_transform("own", Bare)
    transform = place.transform()
    assert isinstance(transform, StatelessTransform)
    assert processed(transform.processor(), batch(1, 2)) == ([1, 2], [])
    transform.close()


def test_a_transform_is_not_stateless_unless_it_says_so(place: Place) -> None:
    class Usual(Doubling):
        stateless = False

    register_transform("own", Usual)
    transform = place.transform()
    assert isinstance(transform, PluginTransform)
    assert transform.capabilities.placement is Placement.DRIVER
    transform.close()


# Instances


def test_the_instance_of_the_driver_is_initialized_before_the_first_row(doubling: StatelessTransform) -> None:
    (instance,) = Doubling.made
    assert instance.calls == ["initialize"]
    processed(doubling.processor(), batch(1), batch(2))
    assert Doubling.made == [instance]
    assert instance.calls == ["initialize", [1], [2]]


def test_what_initialize_says_ends_the_start(place: Place) -> None:
    class Broken(Doubling):
        async def initialize(self) -> None:
            raise PluginError("no licence", user=True)

    register_transform("own", Broken)
    with pytest.raises(UserError, match="own transform 't': initialize failed: no licence"):
        place.transform()


def test_a_processor_is_the_same_after_a_round_trip_and_finds_its_instance(doubling: StatelessTransform) -> None:
    original = doubling.processor()
    copy = pickle.loads(pickle.dumps(original))
    assert copy is not original
    assert copy == original
    assert processed(copy, batch(1)) == processed(original, batch(1)) == ([2], [])
    assert len(Doubling.made) == 1


def test_tasks_of_one_process_share_an_instance_that_runs_one_batch_at_a_time(doubling: StatelessTransform) -> None:
    copies = [pickle.dumps(doubling.processor())] * 8
    with ThreadPoolExecutor(8) as pool:
        given = pool.map(lambda copy: processed(pickle.loads(copy), *(batch(n) for n in range(10, 30))), copies)
    assert all(result == ([2 * n for n in range(10, 30)], []) for result in given)
    (instance,) = Doubling.made
    assert len(instance.calls) == 1 + 8 * 20


def test_nodes_with_different_options_have_instances_of_their_own(place: Place) -> None:
    register_transform("own", Doubling)
    one, two = place.transform("type: own, speed: 1"), place.transform("type: own, speed: 2")
    assert [made.options for made in Doubling.made] == [{"speed": "1"}, {"speed": "2"}]
    for transform in (one, two):
        transform.close()


def test_the_instance_of_the_driver_ends_with_the_run_and_the_next_run_has_another(place: Place) -> None:
    register_transform("own", Doubling)
    for _ in range(2):
        transform = place.transform()
        transform.close()
        transform.close()
    assert [made.calls for made in Doubling.made] == [["initialize", "terminate"]] * 2


IN_A_WORKER = """
import pickle, sys
from support.plugin_nodes import batch, processed
processor = pickle.loads(sys.stdin.buffer.read())
print([processed(processor, batch(1, 3), batch(5))[0], processed(processor, batch(7))[0]])
"""


def test_another_process_loads_the_plugin_of_a_file_and_has_an_instance_of_its_own(place: Place) -> None:
    write_plugin(
        place.directory,
        """
        @register_transform("adding")
        class Adding(TransformPlugin):
            stateless = True
            def output_schema(self):
                return self.context.input_schema
            def initialize(self):
                self.by = int(self.options["by"])
            def process_batch(self, batch):
                ids = batch.column("id").to_pylist()
                if 3 in ids:
                    raise PluginError("bad", rows={ids.index(3): "three"})
                columns = [pa.array([i + self.by for i in ids]), batch.column("_gs_op")]
                return pa.RecordBatch.from_arrays(columns, schema=NUMBERS)
        """,
    )
    place.settings = settings(place.directory)
    transform = place.transform("type: adding, by: 100")
    sent = pickle.dumps(transform.processor())
    load_plugins(settings())  # this process forgets it; the other has never known it
    path = "\n".join(["import sys", f"sys.path[:0] = {sys.path!r}"])
    worker = subprocess.run([sys.executable, "-c", path + IN_A_WORKER], input=sent, capture_output=True, check=False)
    assert worker.stdout.decode().strip() == "[[101, 105], [107]]", worker.stderr.decode()
    transform.close()


def test_a_plugin_that_a_worker_does_not_find_is_named(place: Place) -> None:
    register_transform("own", Doubling)
    transform = place.transform()
    processor = transform.processor()
    transform.close()
    gone = pickle.loads(pickle.dumps(processor).replace(b"own", b"owm"))
    with pytest.raises(PermanentError, match="transform plugin 'owm' is not registered again"):
        processed(gone, batch(1))


# Rows


def test_rows_that_the_plugin_names_are_bad_and_it_gets_the_others_again(doubling: StatelessTransform) -> None:
    rows, bad = processed(doubling.processor(), batch(1, 3, 4), batch(3), batch(5))
    assert rows == [2, 8, 10]
    row = {"id": 3, "_gs_op": "i"}
    assert [(b.reason, b.message, b.row) for b in bad] == [("plugin_error", "three is rejected", row)] * 2


def test_any_other_error_ends_the_run(place: Place) -> None:
    class Broken(Doubling):
        def process_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
            raise ConnectionError("no route")

    register_transform("own", Broken)
    transform = place.transform()
    with pytest.raises(PermanentError, match="own transform 't': process_batch failed: ConnectionError: no route"):
        processed(transform.processor(), batch(1))
    transform.close()


def test_a_row_with_an_odd_operation_is_bad(place: Place) -> None:
    class Odd(Doubling):
        def process_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
            return rows.set_column(1, "_gs_op", pa.array(["i", "x"]))

    register_transform("own", Odd)
    transform = place.transform()
    rows, bad = processed(transform.processor(), batch(1, 2))
    assert rows == [1]
    assert [b.reason for b in bad] == ["unknown_operation"]
    transform.close()


def test_a_batch_size_cuts_and_joins_batches(place: Place) -> None:
    register_transform("own", Doubling)
    transform = place.transform("type: own, batch_size: 4")
    assert processed(transform.processor(), batch(1, 2), batch(5, 6, 7, 8, 9))[0] == [2, 4, 10, 12, 14, 16, 18]
    assert Doubling.made[0].calls == ["initialize", [1, 2, 5, 6], [7, 8, 9]]
    transform.close()


def test_rows_are_given_as_they_are_asked_for(doubling: StatelessTransform) -> None:
    """An executor must not hold a whole partition."""
    rows = doubling.processor().process(EPOCH, (batch(n) for n in range(10, 1_000_000_000)))
    found = [next(item for item in rows if not isinstance(item, Counted)) for _ in range(3)]
    assert ids(found) == [20, 22, 24]


def test_a_plugin_without_memory_has_no_state(place: Place) -> None:
    class Remembering(Doubling):
        def process_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
            self.context.state.put(1)
            return rows

    register_transform("own", Remembering)
    transform = place.transform()
    with pytest.raises(StreamlingError, match="a stateless plugin has no state"):
        processed(transform.processor(), batch(1))
    assert place.state.items() == {}
    transform.close()


# Counts


def test_what_an_instance_counts_comes_with_the_rows_it_was_counted_for(doubling: StatelessTransform) -> None:
    given = list(doubling.processor().process(EPOCH, iter([batch(1, 2), batch(4)])))
    assert [item.count if isinstance(item, Counted) else ids([item]) for item in given] == [2, [2, 4], 1, [8]]


def test_what_processors_have_counted_reaches_the_metrics_of_the_node(
    place: Place, doubling: StatelessTransform
) -> None:
    for number in (3, 4):
        given = doubling.processor().process(EPOCH, iter([batch(*range(10, 10 + number))]))
        doubling.count({item.what: item.count for item in given if isinstance(item, Counted)})
    (found,) = [metric for metric in place.metrics.snapshot() if metric.name == "streamling_doubled"]
    assert found.value == 7
    assert dict(found.labels) == {
        "id": "t",
        "topology_node_type": "transform",
        "operator_type": "plugin",
        "type": "own",
    }


def test_tags_of_counts_and_labels_of_the_plugin_are_kept(place: Place) -> None:
    class Tagging(Doubling):
        def labels(self) -> dict[str, str]:
            return {"team": "billing"}

        def process_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
            for id_ in rows.column("id").to_pylist():
                # Tags are pairs in any form, of values in any type.
                tags = iter([("parity", "odd" if id_ % 2 else "even"), ("share", Decimal("0.5"))])
                self.context.metrics.record_count("seen", 1, tags)
            self.context.metrics.record_count_w_tags("batches", 1, {"size": "small"})
            self.context.metrics.record_count("broken", "no number")  # type: ignore[arg-type]
            return rows

    register_transform("own", Tagging)
    transform = place.transform()
    given = transform.processor().process(EPOCH, iter([batch(1, 2, 3)]))
    transform.count({item.what: item.count for item in given if isinstance(item, Counted)})
    found = [metric for metric in place.metrics.snapshot() if metric.name == "streamling_seen"]
    assert {(dict(m.labels)["parity"], dict(m.labels)["team"], m.value) for m in found} == {
        ("odd", "billing", 2),
        ("even", "billing", 1),
    }
    (batches,) = [metric for metric in place.metrics.snapshot() if metric.name == "streamling_batches"]
    assert (dict(batches.labels)["size"], batches.value) == ("small", 1)
    transform.close()


def test_a_count_is_not_added_where_it_was_made(place: Place, doubling: StatelessTransform) -> None:
    """It is added once the rows are written, wherever they were processed."""
    processed(doubling.processor(), batch(1, 2))
    assert not [metric for metric in place.metrics.snapshot() if metric.name == "streamling_doubled"]


# Registration


def test_a_stateless_transform_that_wants_markers_is_refused(place: Place) -> None:
    class Holding(Doubling):
        def process_checkpoint_marker(self, epoch: int) -> None:
            return None

    said = "transform plugin 'own': Holding is stateless, so it gets no markers, but has process_checkpoint_marker"
    with pytest.raises(UserError) as caught:
        register_transform("own", Holding)
    assert (caught.value.code, caught.value.message) == ("PLUGIN_NOT_LOADED", said)


def test_a_marker_method_that_is_inherited_counts_as_well(place: Place) -> None:
    class Holding(TransformPlugin):
        def process_checkpoint_marker(self, epoch: int) -> None:
            return None

    class Heir(Holding):
        stateless = True
        output_schema = process_batch = Doubling.process_batch

    with pytest.raises(UserError, match="Heir is stateless"):
        register_transform("own", Heir)


def test_a_partitioned_plugin_stays_in_the_driver_though_it_calls_itself_stateless(place: Place) -> None:
    """It has its own idea of which rows go to which instance."""

    class Dealt(Doubling):
        @classmethod
        def describe(cls, options: dict[str, str], input_schema: pa.Schema) -> Description:
            return Description(output_schema=input_schema, placement=ByColumns("id"))

        def process_checkpoint_marker(self, epoch: int) -> None:
            return None

    register_transform("own", Dealt, partitioned=True)
    transform = place.transform("type: own, parallelism: 3")
    assert isinstance(transform, PluginTransform)
    assert transform.capabilities.placement is Placement.DRIVER
    assert len(Doubling.made) == 3
    rows, _ = processed(transform.processor(), batch(*range(10, 40)))
    assert sorted(rows) == [2 * n for n in range(10, 40)]
    transform.close()
