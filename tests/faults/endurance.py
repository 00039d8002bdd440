"""Many epochs of mixed sizes in one process: `python tests/faults/endurance.py --epochs 5000 [--seed N]`.

From a topic into a table and into files. Epochs have one row to 25,000 rows, a few rows of 8 KB among them. Memory,
open files and threads of all processes are measured all the time. Exit code 1 if the last quarter of the run needs
more than the second, or if a row is missing or doubled at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from pyarrow import parquet

from streamling.dev.topics import Message
from support.harness import Child, Workspace, relatives, workspace
from support.kafka_broker import KafkaBroker
from support.local_stack import local_stack
from support.postgres_server import Database, PostgresServer

PARTITIONS, KEYS = 4, 20_000
PIPELINE = """\
sources:
  events:
    type: kafka
    topic: {topic}
    data_format: json
    schema: {{n: int64, id: int64, padding: string}}
transforms:
  doubled: {{type: sql, primary_key: n, sql: "SELECT n, id, n * 2 AS twice, padding FROM events"}}
  latest: {{type: sql, primary_key: id, sql: "SELECT id, n FROM events"}}
sinks:
  table: {{type: postgres, from: latest, schema: public, table: latest, batch_flush_interval: 20ms}}
  files: {{type: file, from: doubled, path: files, format: parquet, batch_flush_interval: 20ms}}
"""
# Rows of a burst, bytes of a row, and how often there is such a burst.
BURSTS = (
    (range(1, 50), 0, 900),
    (range(1000, 3000), 200, 80),
    (range(21_000, 25_000), 0, 10),
    (range(500, 1500), 8000, 5),
)
# Each burst becomes one epoch or two; more at once would become larger epochs instead of more.
AHEAD = 3
MORE_MEMORY, MORE_FILES, MORE_THREADS = 1.1, 4, 4


@dataclass(frozen=True)
class Look:
    """What all processes of the run need at one moment."""

    epochs: int
    memory_mb: float
    files: int
    threads: int


class Run:
    """The pipeline at work, and what was sent to it."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, database: Database) -> None:
        self._place, self._kafka, self._database = place, kafka, database
        self._topic = kafka.topic(partitions=PARTITIONS)
        self._sent = 0
        place.write(PIPELINE.format(topic=self._topic))
        self._settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, **database.settings()}

    def through(self, epochs: int) -> tuple[list[Look], list[str]]:
        """What it needed, and the differences at the end."""
        child, looks = self._place.start(**self._settings), []
        behind, following = 0, _finalized(child)
        while (done := next(following)) < epochs:
            if behind - done < AHEAD:
                behind = done + 1 if behind <= done else behind + 1
                self._burst()
            if not looks or done >= looks[-1].epochs + epochs // 40:
                looks.append(look(child, done))
                print(looks[-1], flush=True)
            time.sleep(0.02)
        child.until(lambda: self._arrived(), "all rows")
        looks.append(look(child, done))
        child.signal(signal.SIGTERM)
        child.wait().succeeded()
        return looks, self._differences()

    def _burst(self) -> None:
        rows, size, _ = random.choices(BURSTS, [often for *_, often in BURSTS])[0]
        self._kafka.produce(self._topic, [self._message(size) for _ in range(random.choice(rows))])

    def _message(self, size: int) -> Message:
        n, self._sent = self._sent, self._sent + 1
        padding = {"padding": f"{n:08}" * (size // 8)} if size else {}
        value = json.dumps({"n": n, "id": n % KEYS, **padding}).encode()
        return Message(value, partition=n % PARTITIONS)

    def _arrived(self) -> bool:
        ((most,),) = self._database.rows("SELECT max(n) FROM latest")
        return bool(most == self._sent - 1)

    def _differences(self) -> list[str]:
        ids = Counter[int]()
        for file in self._place.files("files", "parquet"):
            ids.update(parquet.read_table(file, columns=["n"])["n"].to_pylist())
        owed = Counter(range(self._sent))
        missing, doubled = (owed - ids).total(), (ids - owed).total()
        problems = [f"files: {missing} missing, {doubled} too many"] if missing or doubled else []
        held = dict(self._database.rows("SELECT id, n FROM latest"))
        newest = {n % KEYS: n for n in range(max(0, self._sent - KEYS), self._sent)}
        wrong = sum(held.get(id_) != n for id_, n in newest.items())
        return problems + ([f"table: {wrong} of {len(newest)} rows are wrong"] if wrong else [])


def _finalized(child: Child) -> Iterator[int]:
    """How many epochs were finalized by now; the process must not end."""
    epochs, position, path = 0, 0, child.stderr_path
    while True:
        assert child.process.poll() is None, f"it has ended\n{child.stderr[-4000:]}"
        with path.open("rb") as log:
            log.seek(position)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        position += len(whole)
        epochs += whole.count(b"Epoch finalized")
        yield epochs


def look(child: Child, epochs: int) -> Look:
    memory, files, threads = 0, 0, 0
    for process in relatives(child.marker):
        try:
            memory += process.memory_full_info().pss
            files += process.num_fds()
            threads += process.num_threads()
        except psutil.Error:  # it has just ended
            continue
    return Look(epochs, round(memory / 1e6), files, threads)


def growth(looks: list[Look]) -> list[str]:
    """What the last quarter needs more than the second. The first one is for growing to the usual size."""
    quarter = len(looks) // 4
    early, late = looks[quarter : 2 * quarter], looks[-quarter:]

    def medians(figure: Callable[[Look], float]) -> tuple[float, float]:
        return statistics.median(map(figure, early)), statistics.median(map(figure, late))

    problems = []
    for name, figure, most in (
        ("memory in MB", lambda one: one.memory_mb, lambda before: before * MORE_MEMORY),
        ("open files", lambda one: one.files, lambda before: before + MORE_FILES),
        ("threads", lambda one: one.threads, lambda before: before + MORE_THREADS),
    ):
        before, after = medians(figure)
        print(f"{name}: {before:.0f} in the second quarter, {after:.0f} in the last")
        if after > most(before):
            problems.append(f"{name} grew from {before:.0f} to {after:.0f}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=5000, help="epochs (default: 5000)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier run")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    random.seed(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="streamling-endurance-") as directory, local_stack() as stack:
        with workspace(Path(directory)) as place:
            run = Run(place, KafkaBroker(stack), PostgresServer(stack).database())
            looks, problems = run.through(options.epochs)
    problems += growth(looks)
    for line in problems:
        print(line)
    verdict = "FAILED" if problems else "flat, and every row once"
    print(f"{verdict}; {options.epochs} epochs, {time.monotonic() - began:.0f} s, seed {seed}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
