"""Plugins in whole pipelines: loaded by path, stopped, killed, restarted."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from support.harness import Finished, MakeWorkspace, Workspace, printed

OWN = """
import asyncio
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from streamling.plugin import (
    PluginError, SinkPlugin, SourcePlugin, TransformPlugin, register_sink, register_source, register_transform,
    register_udf,
)

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), nullable=False),
    pa.field("size", pa.uint64()),
    pa.field("_gs_op", pa.string(), nullable=False),
])


@register_source("acme.counter")
class Counter(SourcePlugin):
    '''Numbers from 0, `rows` of them, ten at a time; stores how many were delivered.'''

    def __init__(self, context, options):
        super().__init__(context, options)
        self.rows = int(options["rows"])
        self.pause = float(options.get("pause", "0"))
        self.bounded = True

    def output_schema(self):
        return SCHEMA

    async def initialize(self):
        self.next = self.context.state.get() or 0
        self.noted = {}
        self.context.logger.warning("counter starts at %d", self.next)

    def is_running(self):
        return self.next < self.rows

    async def generate_batch(self):
        await asyncio.sleep(self.pause)
        numbers = range(self.next, min(self.next + 10, self.rows))
        self.next += len(numbers)
        return pa.RecordBatch.from_pydict(
            {"id": list(numbers), "size": [2**64 - 1 - n for n in numbers], "_gs_op": ["i"] * len(numbers)},
            schema=SCHEMA,
        )

    async def process_checkpoint_marker(self, epoch):
        self.noted[epoch] = self.next

    async def process_checkpoint_finalizer(self, epoch):
        done = [noted for noted in self.noted if noted <= epoch]
        if done:
            self.context.state.put(self.noted[max(done)])
        self.noted = {e: p for e, p in self.noted.items() if e > epoch}


@register_transform("acme.tag")
class Tag(TransformPlugin):
    def output_schema(self):
        schema = self.context.input_schema
        return schema.insert(schema.get_field_index("_gs_op"), pa.field("tag", pa.string()))

    def process_batch(self, batch):
        bad = {n: "thirteen" for n, i in enumerate(batch.column("id").to_pylist()) if i == 13}
        if bad:
            raise PluginError("unlucky", rows=bad)
        tags = pa.array([f"{self.options['prefix']}{i}" for i in batch.column("id").to_pylist()])
        columns = [*batch.columns[:-1], tags, batch.columns[-1]]
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema())


@register_sink("acme.lines")
class Lines(SinkPlugin):
    def __init__(self, context, options):
        super().__init__(context, options)
        self.path = Path(options["path"])

    async def initialize(self):
        self.file = self.path.open("a")

    async def process_batch(self, batch):
        for row in batch.to_pylist():
            self.file.write(json.dumps(row) + "\\n")

    async def process_checkpoint_marker(self, epoch):
        self.file.flush()
        os.fsync(self.file.fileno())

    async def terminate(self):
        if hasattr(self, "file"):
            self.file.write("closed\\n")
            self.file.close()


register_udf("acme_shout", [pa.string(), pa.string()], pa.string(),
             lambda text, mark: pc.binary_join_element_wise(pc.utf8_upper(text), mark, ""))
"""

ALL_KINDS = """
sources:
  counter: {type: acme.counter, rows: 25, primary_key: id}
transforms:
  tagged: {type: acme.tag, from: counter, prefix: t-, on_error: skip}
  loud:
    type: sql
    primary_key: id
    sql: SELECT id, size, acme_shout(tag, '!') AS tag FROM tagged WHERE id % 2 = 1
sinks:
  lines: {type: acme.lines, from: loud, path: lines.jsonl}
  files: {type: file, from: counter, path: files, format: parquet}
"""


def write_plugin(place: Workspace, text: str = OWN) -> Path:
    file = place.directory / "own.py"
    file.write_text(text)
    return file


def lines(place: Workspace) -> list[dict[str, Any]]:
    text = (place.directory / "lines.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines() if line != "closed"]


@pytest.fixture(scope="module")
def all_kinds(new_place: MakeWorkspace) -> Workspace:
    place = new_place().write(ALL_KINDS)
    write_plugin(place)
    place.run(PLUGIN__PATH="own.py").succeeded()
    return place


def test_one_file_is_source_transform_sink_and_function(all_kinds: Workspace) -> None:
    rows = lines(all_kinds)
    wanted = [n for n in range(25) if n % 2 and n != 13]
    assert [row["id"] for row in rows] == wanted
    assert rows[0] == {"id": 1, "size": 2**64 - 2, "tag": "T-1!", "_gs_op": "i"}


def test_a_bounded_plugin_source_ends_the_run_and_every_sink_has_its_rows(all_kinds: Workspace) -> None:
    assert sorted(row["id"] for row in all_kinds.rows("files", "parquet")) == list(range(25))
    assert (all_kinds.directory / "lines.jsonl").read_text().endswith("closed\n")


def test_the_state_of_a_plugin_survives_a_restart(all_kinds: Workspace) -> None:
    assert all_kinds.state()["counter"] == 25
    again = all_kinds.write(ALL_KINDS.replace("rows: 25", "rows: 30")).run(PLUGIN__PATH="own.py").succeeded()
    assert "counter starts at 25" in again.stderr
    assert [row["id"] for row in lines(all_kinds)][-2:] == [27, 29]
    assert sorted(row["id"] for row in all_kinds.rows("files", "parquet")) == list(range(30))


SLOW = """
sources:
  counter: {type: acme.counter, rows: 1000000, pause: 0.05, primary_key: id}
sinks:
  lines: {type: acme.lines, from: counter, path: lines.jsonl}
"""


def finish(place: Workspace, rows: int) -> None:
    """Run to an end that is not far away any more."""
    place.write(SLOW.replace("rows: 1000000, pause: 0.05", f"rows: {rows}")).run(PLUGIN__PATH="own.py").succeeded()


def test_stopped_and_then_killed_a_plugin_source_loses_nothing(place: Workspace) -> None:
    place.write(SLOW)
    write_plugin(place)
    running = place.start_warm(PLUGIN__PATH="own.py")
    running.until_epochs(2)
    running.stop().succeeded()
    stored = place.state()["counter"]
    assert [row["id"] for row in lines(place)] == list(range(stored))  # what was read was written, and no more
    for epochs in (2, 4):
        child = place.start(spark=False, PLUGIN__PATH="own.py")
        child.until_epochs(epochs)
        child.signal(signal.SIGKILL)
        child.wait()
    written = [row["id"] for row in lines(place)]
    assert written[: stored + 1] == list(range(stored + 1))  # behind the stop nothing came again
    rows = max(written) + 20
    finish(place, rows)
    assert {row["id"] for row in lines(place)} == set(range(rows))


def test_in_job_mode_the_last_acknowledgement_of_a_plugin_sink_counts(place: Workspace) -> None:
    place.write(
        "sources:\n  n: {type: generator, rows: 20, primary_key: id}\n"
        "sinks:\n  lines: {type: acme.lines, from: n, path: lines.jsonl}\n"
    )
    write_plugin(place)
    place.run(PLUGIN__PATH="own.py", JOB_MODE=True, CHECKPOINT_INTERVAL_SEC=1).succeeded()
    assert [row["id"] for row in lines(place)] == list(range(20))


SAMPLES = """
sources:
  random: {type: basic_plugin.random_source, max_rows: 4, primary_key: num_field}
  three: {type: basic_plugin.partitioned_source, rows: 50, preferred_partitions: 3, primary_key: id}
  two: {type: basic_plugin.partitioned_source, rows: 40, parallelism: 2, primary_key: id}
transforms:
  inserts: {type: basic_plugin.filter_transform, from: random, _gs_op: i}
  wide: {type: basic_plugin.partitioned_transform, from: two, parallelism: 4}
  same: {type: basic_plugin.partitioned_transform, from: two}
sinks:
  shown: {type: print_sink, from: inserts, mode: row}
  of_three: {type: file, from: three, path: three, format: parquet}
  of_wide: {type: file, from: wide, path: wide, format: parquet}
  of_same: {type: file, from: same, path: same, format: parquet}
"""


@pytest.fixture(scope="module")
def samples(new_place: MakeWorkspace) -> tuple[Workspace, Finished]:
    place = new_place().write(SAMPLES)
    return place, place.run().succeeded()


def test_a_partitioned_source_runs_as_many_instances_as_it_prefers(samples: tuple[Workspace, Finished]) -> None:
    rows = samples[0].rows("three", "parquet")
    for partition in range(3):
        own = sorted(row["id"] for row in rows if row["source_partition"] == partition)
        assert own == [partition * 1_000_000 + n for n in range(50)]
    assert len(rows) == 150


def test_a_partitioned_transform_has_the_width_it_asks_for_or_that_of_its_input(
    samples: tuple[Workspace, Finished],
) -> None:
    for path, width in (("wide", 4), ("same", 2)):
        rows = samples[0].rows(path, "parquet")
        assert len({row["id"] for row in rows}) == len(rows) == 80
        assert {row["transform_partition"] for row in rows} == set(range(width))


def test_the_record_limit_counts_over_all_instances(place: Workspace) -> None:
    place.write(
        "sources:\n  n: {type: generator, rows: 100, primary_key: id}\n"
        "sinks:\n  o: {type: basic_plugin.partitioned_file_sink, from: n, output_dir: out, parallelism: 2}\n"
    )
    place.run(NUM_RECORDS_BEFORE_STOP=100).succeeded()
    files = sorted((place.directory / "out").iterdir())
    assert [file.name for file in files] == ["o-0.csv", "o-1.csv"]
    texts = [file.read_text().splitlines() for file in files]
    assert all(text[0] == '"id","_gs_op"' and len(text) > 1 for text in texts)
    assert sorted(int(line.split(",")[0]) for text in texts for line in text[1:]) == list(range(100))


def test_the_print_sample_writes_rows_to_standard_output(samples: tuple[Workspace, Finished]) -> None:
    rows = [json.loads(line) for line in samples[1].stdout.splitlines()]
    assert len(rows) == 4
    assert all(len(row["alphanumeric_field"]) == 16 and 0 <= row["num_field"] < 1000 for row in rows)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("self.next += len(numbers)", "self.next += 1 / 0"), "generate_batch failed: ZeroDivisionError"),
        (("self.file.flush()", "raise OSError('disk is gone')"), "process_checkpoint_marker failed: OSError: disk is"),
        (("self.noted[epoch] = self.next", "raise PluginError('no', user=True)"), "acme.counter source 'counter'"),
        (("self.file = self.path.open", "self.file = nothing"), "initialize failed: NameError"),
    ],
)
def test_a_plugin_that_fails_ends_the_run_with_a_message(place: Workspace, change: tuple[str, str], said: str) -> None:
    place.write(SLOW.replace("rows: 1000000", "rows: 20"))
    assert change[0] in OWN
    write_plugin(place, OWN.replace(*change))
    assert said in place.run(PLUGIN__PATH="own.py").failed().stderr


def test_rows_that_a_sink_refuses_become_dead_letters_and_the_others_are_written(place: Workspace) -> None:
    place.write(
        "sources:\n  n: {type: generator, rows: 5, primary_key: id}\n"
        "sinks:\n  lines: {type: acme.lines, from: n, path: lines.jsonl, on_error: dead_letter, "
        "dead_letter: {type: file, path: letters}}\n"
    )
    refusing = """    async def process_batch(self, batch):
        ids = batch.column("id").to_pylist()
        if 3 in ids:
            raise PluginError("no threes", rows={ids.index(3): "three"})
"""
    write_plugin(place, OWN.replace("    async def process_batch(self, batch):\n", refusing))
    place.run(PLUGIN__PATH="own.py").succeeded()
    assert [row["id"] for row in lines(place)] == [0, 1, 2, 4]
    (file,) = (place.directory / "letters").glob("lines-*.jsonl")
    (letter,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (letter["stage"], letter["reason_code"], letter["reason_text"]) == ("write", "plugin_error", "three")
    assert letter["row"] == {"id": 3, "_gs_op": "i"}


def test_a_function_that_fails_names_itself_and_its_node(place: Workspace) -> None:
    place.write(
        "sources:\n  n: {type: generator, rows: 3, primary_key: id}\n"
        "transforms:\n  broken: {type: sql, primary_key: id, sql: SELECT id, acme_broken(id) AS x FROM n}\n"
        "  after: {type: sql, primary_key: id, sql: SELECT id FROM broken WHERE x > 0}\n"
        "sinks:\n  o: {type: blackhole, from: after}\n".replace("sql: SELECT id,", 'sql: "SELECT id,').replace(
            "AS x FROM n}", 'AS x FROM n"}'
        )
    )
    write_plugin(place, OWN + "\nregister_udf('acme_broken', [pa.int64()], pa.int64(), lambda a: 1 / 0)\n")
    failed = place.run(PLUGIN__PATH="own.py").failed()
    assert "function 'acme_broken' of a plugin failed: ZeroDivisionError" in failed.stderr
    assert "sql transform 'broken'" in failed.stderr


def test_a_plugin_that_waits_for_ever_can_be_stopped(place: Workspace) -> None:
    place.write(
        SLOW.replace("pause: 0.05", "pause: 100000").replace(
            "sinks:", "  n: {type: acme.counter, rows: 3, primary_key: id}\nsinks:\n  all: {type: print, from: n}"
        )
    )
    write_plugin(place)
    child = place.start(spark=False, PLUGIN__PATH="own.py")
    child.until_epochs(1)  # the other source is delivered meanwhile
    child.signal(signal.SIGTERM)
    finished = child.wait(60).succeeded()
    assert [row["id"] for *_, row in printed(finished.stdout)] == [0, 1, 2]


WATCHING = """
from streamling.plugin import SideOutputPlugin, register_side_output

@register_side_output("watch")
class Watch(SideOutputPlugin):
    def __init__(self, source, schema, options, metrics):
        super().__init__(source, schema, options, metrics)
        self.file = open(f"{source}.watched", "a")
        self.file.write(f"{schema.names} {options}\\n")

    async def process_batch(self, batch):
        self.file.writelines(f"{row['id']}\\n" for row in batch.to_pylist())

    def shutdown(self):
        self.file.write("shut down\\n")
        self.file.close()
        raise RuntimeError("only a warning")
"""


def test_a_side_output_sees_every_row_of_every_source(place: Workspace) -> None:
    place.write(
        "sources:\n  a: {type: generator, rows: 5, primary_key: id}\n"
        "  b: {type: acme.counter, rows: 25, primary_key: id}\n"
        "sinks:\n  few: {type: print, from: a, sample_every: 4}\n  all: {type: blackhole, from: b}\n"
    )
    write_plugin(place, OWN + WATCHING)
    settings = {"PLUGIN__SIDE_OUTPUT_IDS": "watch", "PLUGIN__SIDE_OUTPUT_OPTIONS__WATCH__DEPTH": "3"}
    finished = place.run(PLUGIN__PATH="own.py", NUM_RECORDS_BEFORE_STOP=1000, **settings).succeeded()
    for source, rows, columns in (("a", 5, "['id', '_gs_op']"), ("b", 25, "['id', 'size', '_gs_op']")):
        head, *ids, last = (place.directory / f"{source}.watched").read_text().splitlines()
        assert (head, last) == (f"{columns} {{'depth': '3'}}", "shut down")
        assert [int(i) for i in ids] == list(range(rows))
    assert "side output 'watch' did not close" in finished.stderr


def test_a_side_output_that_fails_ends_the_run(place: Workspace) -> None:
    place.write("sources:\n  a: {type: generator, rows: 5, primary_key: id}\nsinks:\n  o: {type: blackhole, from: a}\n")
    write_plugin(place, WATCHING.replace("batch.to_pylist()", "batch.rows"))
    failed = place.run(PLUGIN__PATH="own.py", PLUGIN__SIDE_OUTPUT_IDS="watch").failed()
    assert "side output 'watch' of generator source 'a': process_batch failed: AttributeError" in failed.stderr


def test_a_second_ctrl_c_does_not_wait_for_a_sink_that_hangs(place: Workspace) -> None:
    place.write(
        "sources:\n  n: {type: generator, rows: 5, primary_key: id}\n"
        "sinks:\n  lines: {type: acme.lines, from: n, path: lines.jsonl}\n"
    )
    hanging = """    async def process_batch(self, batch):
        import time
        (self.path.parent / "hangs").touch()
        time.sleep(60)
"""
    write_plugin(place, OWN.replace("    async def process_batch(self, batch):\n", hanging))
    child = place.start(PLUGIN__PATH="own.py")
    child.until((place.directory / "hangs").exists, "the sink to hang")
    child.signal(signal.SIGINT)
    child.until(lambda: "SIGINT received" in child.stderr, "the first Ctrl-C to be heard")
    began = time.monotonic()
    child.signal(signal.SIGINT)
    finished = child.wait(30).succeeded()
    assert time.monotonic() - began < 11  # the last epoch would have had 12 s
    assert "interrupted again: ending at once" in finished.stderr


def test_the_samples_of_the_readme_run_without_a_path(place: Workspace) -> None:
    """One number in a thousand is a seven: of 50,000 rows about fifty."""
    text = (Path(__file__).resolve().parents[2] / "examples" / "samples.yaml").read_text()
    place.write(text.replace("max_rows: 5000", "max_rows: 50000"))
    finished = place.run().succeeded()
    rows = [json.loads(line) for line in finished.stdout.splitlines()]
    assert "50,000 rows" in finished.stderr
    assert {row["num_field"] for row in rows} == {7}
