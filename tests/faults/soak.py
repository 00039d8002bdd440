"""A long run of random faults against one pipeline: `python tests/faults/soak.py --faults 20 [--seed N]`.

Each round starts the pipeline, waits for a random moment and does something to it: kills the driver or the JVM, asks
for a stop, suspends the process while another takes over. At the end the rows in both sinks are compared with the
model. Exit code 1 if one is missing or doubled, or if a process ended in a way it should not.

With `--instances` two processes share a topic and write files; the broker, the topic and the disk have faults, too.
With `--postgres` they keep tables and positions in Postgres, and the database has faults, too.
With `--kafka` they write topics of the same broker; readers of committed messages see each change once, in order.
With `--clickhouse` one process reads a table of a million rows into Postgres and ClickHouse, and is killed in between.
With `--clickhouse-sink` one process writes changes of a topic into ClickHouse; the server has faults, too.
With `--hybrid` one process reads a table and then the topic it is a copy of, while both grow; `--rows` says how many
rows the table has at the start.

`--mix restart_broker=10,crash=10,freeze_broker=2` instead of `--faults` chooses the faults and how often each happens.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from streamling.dev.stack import Stack
from streamling.errors import PermanentError
from support.backfill import POINTS as BACKFILL_POINTS
from support.backfill import Backfill
from support.clickhouse_server import ClickHouseServer
from support.harness import Child, Workspace, workspace
from support.hybrid_samples import INTO_FILES, History, source
from support.hybrid_samples import differences as hybrid_differences
from support.into_clickhouse import POINTS as CLICKHOUSE_POINTS
from support.into_clickhouse import IntoClickHouse
from support.into_files import IntoFiles
from support.into_tables import POINTS, TABLES, IntoTables
from support.into_topics import POINTS as TOPIC_POINTS
from support.into_topics import IntoTopics
from support.kafka_broker import KafkaBroker
from support.local_stack import LocalServer, local_stack
from support.postgres_server import PostgresServer
from support.schema_registry import SchemaRegistry
from support.two_instances import TwoInstances
from support.two_sinks import differences, write

# More than the longest rounds can deliver at this rate; the last run has no rate and takes the rest at once.
ROWS_PER_FAULT = 6000
RATE = 300
DISK_BYTES = 1 << 30
# A server that has not answered in its time is stopped; on a busy machine the next start may be quick enough.
START_ATTEMPTS = 3
Fault = Callable[[], str]
Chosen = TypeVar("Chosen")
Choice = Callable[[Sequence[Callable[..., str]]], list[Callable[..., str]]]


# One process


def kill_driver(place: Workspace, child: Child) -> str:
    child.signal(signal.SIGKILL)
    return _ended(child, -signal.SIGKILL)


def kill_jvm(place: Workspace, child: Child) -> str:
    child.until_epochs(1)  # before that, a start without the class archive would be tried
    child.jvm().kill()
    return _ended(child, 1)


def terminate(place: Workspace, child: Child) -> str:
    """In its first second a process does not listen to signals yet, and the system ends it."""
    starting = child.epochs == 0
    child.signal(signal.SIGTERM)
    return _ended(child, -signal.SIGTERM if starting else 0)


def interrupt_group(place: Workspace, child: Child) -> str:
    child.signal_group(signal.SIGINT)
    return _ended(child, 0)


def take_over(place: Workspace, child: Child) -> str:
    """Suspend it, let another work, wake it up while the other works, then stop or kill both."""
    place.suspend(child)
    other = place.start()
    other.until_epochs(random.randint(1, 5))
    child.signal(signal.SIGCONT)
    time.sleep(random.uniform(0, 6))
    told = []
    for one in random.sample([child, other], 2):
        fault = random.choice([kill_driver, terminate])
        told.append(f"{'first' if one is child else 'second'}: {fault.__name__}, {fault(place, one)}")
        time.sleep(random.uniform(0, 2))
    return "; ".join(told)


FAULTS: tuple[Callable[[Workspace, Child], str], ...] = (kill_driver, kill_jvm, terminate, interrupt_group, take_over)


def _ended(child: Child, code: int) -> str:
    """A process that reached the end of input before the fault has ended well too."""
    finished = child.wait()
    assert finished.code in (code, 0), f"exit code {finished.code} instead of {code}\n{finished.stderr[-4000:]}"
    return f"exit {finished.code} after {child.epochs} epochs"


def soak(place: Workspace, choose: Choice) -> list[str]:
    """The differences at the end."""
    faults = choose(FAULTS)
    rows = len(faults) * ROWS_PER_FAULT
    write(place, rows, rate=RATE)
    for number, fault in enumerate(faults, 1):
        large = random.random() < 0.3
        child = place.start(**({"EPOCH__DRIVER_ROWS": 0} if large else {}))
        if random.random() < 0.8:
            child.until_epochs(random.randint(1, 4))
        time.sleep(random.uniform(0.5, 2))
        told = fault(place, child)
        print(f"{number:>3} {fault.__name__:<16}{'large ' if large else ''}{told}", flush=True)
    write(place, rows)
    place.run().succeeded()
    return differences(place, rows)


def shuffled(rounds: int, faults: Sequence[Chosen]) -> list[Chosen]:
    """Every fault at least once, if there are enough rounds."""
    chosen = list(itertools.islice(itertools.cycle(faults), rounds))
    random.shuffle(chosen)
    return chosen


def mixed(counts: Mapping[str, int], faults: Sequence[Callable[..., str]]) -> list[Callable[..., str]]:
    """Each of these faults so many times, in any order."""
    named = {fault.__name__: fault for fault in faults}
    if unknown := counts.keys() - named.keys():
        raise SystemExit(f"no such fault: {', '.join(sorted(unknown))}. There are: {', '.join(sorted(named))}")
    chosen = [named[name] for name, count in counts.items() for _ in range(count)]
    random.shuffle(chosen)
    return chosen


def counts_of(text: str) -> dict[str, int]:
    """`a=2,b` is two times a and once b."""
    pairs = [item.partition("=") for item in text.split(",")]
    return {name: int(count or 1) for name, _, count in pairs}


# Two processes


class Instances:
    """What can be done to one of two processes, to their broker and to their topic."""

    def __init__(self, pair: TwoInstances[Any], kafka: KafkaBroker, points: Sequence[str] = ()) -> None:
        """`points` of the protocol, at which a process crashes."""
        self._pair, self._kafka = pair, kafka
        self._points = itertools.cycle(random.sample(points, len(points)))
        self.faults: list[Fault] = [
            self.kill,
            self.terminate,
            self.suspend,
            self.freeze_broker,
            self.add_partition,
            self.other_application,
        ]

    def kill(self) -> str:
        number = self._chosen()
        self._pair.kill(number)
        return f"instance {number}"

    def terminate(self) -> str:
        number = self._chosen()
        self._pair.terminate(number)
        return f"instance {number}"

    def suspend(self) -> str:
        number, more_s = self._chosen(busy=True), random.uniform(0, 5)
        self._pair.at_work(1 - number)
        self._pair.suspend(number, more_s)
        return f"instance {number}, {more_s:.1f} s longer than until the other had all"

    def crash(self) -> str:
        number, point = random.randrange(2), f"{next(self._points)}@{random.randint(1, 3)}"
        self._pair.crash(number, lambda: self._pair.target.start(point))
        return f"instance {number} at {point}"

    def freeze_broker(self) -> str:
        return frozen(self._kafka)

    def restart_broker(self) -> str:
        random.choice([self._kafka.stop, self._kafka.kill])()
        return back(self._kafka)

    def add_partition(self) -> str:
        return f"now {self._pair.target.add_partition()}"

    def other_application(self) -> str:
        """It has the same group by mistake."""
        for number in (0, 1):
            self._pair.at_work(number)
        finished = self._pair.target.start(APPLICATION_ID="other_app").wait().failed()
        assert "test_app" in finished.stderr, f"the first application is not named\n{finished.stderr[-4000:]}"
        return "refused"

    def soak(self, choose: Choice) -> list[str]:
        faults = choose(self.faults)
        with self._pair.running():
            for number in (0, 1):
                self._pair.at_work(number)
            for number, fault in enumerate(faults, 1):
                began = time.monotonic()
                told = fault()
                if hurried := random.random() < 0.25:
                    time.sleep(random.uniform(0, 2))
                else:
                    self._pair.progress()
                after = "at once the next" if hurried else f"all there after {time.monotonic() - began:.0f} s"
                print(f"{number:>3} {fault.__name__:<18}{told}; {after}", flush=True)
        totals = Counter(fault.__name__ for fault in faults)
        print(f"done: {', '.join(f'{count} {name}' for name, count in totals.items())}", flush=True)
        problems: list[str] = self._pair.target.differences()
        return problems

    def _chosen(self, *, busy: bool = False) -> int:
        number = random.randrange(2)
        if busy or random.random() < 0.8:
            self._pair.at_work(number)
        return number


class InstancesIntoFiles(Instances):
    """The same, and what can be done to the disk they write to."""

    def __init__(self, pair: TwoInstances[IntoFiles], kafka: KafkaBroker) -> None:
        super().__init__(pair, kafka)
        self._files = pair.target
        self.faults += [self.send_large, self.make_topic_anew]
        if os.path.ismount(self._files.disk):
            self.faults.append(self.fill_disk)
        else:
            print("without a full disk: only root can mount one", flush=True)

    def send_large(self) -> str:
        count = random.randint(500, 4000)
        self._files.send_large(count, 8000)
        return f"{count} rows of 8 KB"

    def make_topic_anew(self) -> str:
        self._files.make_topic_anew(self._pair.until)
        self._pair.progress_after("topic")
        return "with more messages than before"

    def fill_disk(self) -> str:
        seconds = random.uniform(1, 10)
        filler = self._files.disk / "filler"
        with filler.open("wb") as file, suppress(OSError):
            while True:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), 1 << 16)
        time.sleep(seconds)
        filler.unlink()
        return f"{seconds:.1f} s"


class InstancesIntoTables(Instances):
    """The same, and what can be done to the database they use."""

    def __init__(self, pair: TwoInstances[IntoTables], kafka: KafkaBroker, postgres: PostgresServer) -> None:
        super().__init__(pair, kafka, POINTS)
        self._tables, self._postgres = pair.target, postgres
        servers = [self.kill_postgres, self.stop_postgres, self.freeze_postgres, self.restart_broker]
        self.faults += [self.crash, self.crash, *servers, self.lock, self.disconnect]

    def kill_postgres(self) -> str:
        self._postgres.kill()
        return back(self._postgres)

    def stop_postgres(self) -> str:
        self._postgres.shut_down_at_once()
        return back(self._postgres)

    def freeze_postgres(self) -> str:
        return frozen(self._postgres)

    def lock(self) -> str:
        table, seconds = random.choice(TABLES), random.uniform(1, 12)
        with self._tables.database.connect() as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {table}")
            time.sleep(seconds)
        return f"{table}, {seconds:.1f} s"

    def disconnect(self) -> str:
        share = random.choice([0.3, 1.0])
        backends = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'streamling/%%'"
        backend_pids = [pid for (pid,) in self._tables.database.rows(backends) if random.random() < share]
        for pid in backend_pids:
            self._tables.database.rows("SELECT pg_terminate_backend(%s)", pid)
        return f"{len(backend_pids)} connections"


class InstancesIntoTopics(Instances):
    """Processes and their broker only: the order of a key in a topic depends on its number of partitions."""

    def __init__(self, pair: TwoInstances[IntoTopics], kafka: KafkaBroker) -> None:
        super().__init__(pair, kafka, TOPIC_POINTS)
        servers = [self.restart_broker, self.restart_broker, self.freeze_broker]
        self.faults = [self.kill, self.terminate, self.suspend, self.crash, self.crash, self.crash, *servers]


def back(server: LocalServer) -> str:
    seconds = random.uniform(0, 5)
    time.sleep(seconds)
    for _ in range(START_ATTEMPTS - 1):
        with suppress(PermanentError):
            server.start()
            break
    else:
        server.start()
    return f"{seconds:.1f} s away"


def frozen(server: LocalServer) -> str:
    seconds = random.uniform(1, 12)
    server.pause()
    time.sleep(seconds)
    server.resume()
    return f"{seconds:.1f} s"


@contextmanager
def logs_kept(stack: Stack, place: Workspace) -> Iterator[None]:
    """After a failure the logs of the servers are beside those of the processes."""
    try:
        yield
    except AssertionError:
        for log in stack.directory.glob("*/server.log"):
            shutil.copy(log, place.directory / f"{log.parent.name}.log")
        raise


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of its own there, if this user may mount one."""
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", place], check=False)
    try:
        yield
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", place], check=True)


def soak_instances(place: Workspace, choose: Choice) -> list[str]:
    with local_stack() as stack, logs_kept(stack, place), small_disk(place.directory / "disk"):
        kafka = KafkaBroker(stack)
        return InstancesIntoFiles(TwoInstances(place, IntoFiles(place, kafka)), kafka).soak(choose)


def soak_postgres(place: Workspace, choose: Choice) -> list[str]:
    with local_stack() as stack, logs_kept(stack, place):
        kafka, postgres = KafkaBroker(stack), PostgresServer(stack)
        tables = IntoTables(place, kafka, postgres.database(), seed=random.getrandbits(32))
        return InstancesIntoTables(TwoInstances(place, tables), kafka, postgres).soak(choose)


def soak_kafka(place: Workspace, choose: Choice) -> list[str]:
    with local_stack() as stack, logs_kept(stack, place):
        kafka = KafkaBroker(stack)
        topics = IntoTopics(place, kafka, seed=random.getrandbits(32), spark=True)
        return InstancesIntoTopics(TwoInstances(place, topics), kafka).soak(choose)


# A table, then a topic

# Enough to be in the topic for the last rounds.
HYBRID_FAULTS: tuple[Callable[[Workspace, Child], str], ...] = (kill_driver, kill_driver, kill_jvm, terminate)


def soak_hybrid(place: Workspace, choose: Choice, rows: int) -> list[str]:
    """The first rounds are in the table, the others at the hand-over and in the topic."""
    faults = choose(HYBRID_FAULTS)
    with local_stack() as stack:
        history = History(ClickHouseServer(stack), KafkaBroker(stack), SchemaRegistry(stack))
        for _ in range(rows // 50_000):
            history.copy(50_000)
        history.copy(rows % 50_000 or 1)
        place.write(source(history) + INTO_FILES)
        epoch_rows = max(rows // (4 * len(faults)), 1000)
        with history.copying(rows=50, pause=0.5):
            for number, fault in enumerate(faults, 1):
                large = {"EPOCH__DRIVER_ROWS": 0} if random.random() < 0.3 else {}
                child = place.start(**history.settings(), EPOCH__ROWS=epoch_rows, **large)
                if random.random() < 0.8:
                    child.until_epochs(random.randint(1, 4))
                time.sleep(random.uniform(0, 1))
                told = fault(place, child)
                print(f"{number:>3} {fault.__name__:<16}{'large ' if large else ''}{told}", flush=True)
        child = place.start(**history.settings())
        for sink in ("parquet", "json"):
            child.until(lambda sink=sink: place.count(sink, sink) >= history.copied, f"all rows in {sink}", 1200)
        print(terminate(place, child), flush=True)
        return hybrid_differences(place, history)


# ClickHouse

BACKFILL_ROWS = 1_000_000
# Each has two versions. A part is left for the run that is not killed.
RAW_ROWS = int(2 * BACKFILL_ROWS * 0.8)
CHANGES_PER_FAULT = 70


def soak_backfill(place: Workspace, rounds: int) -> list[str]:
    """Kills at a random moment or at a point of the protocol, so often that rows are left for each. An epoch that
    executors have read needs Spark in the next process: the last quarter has it."""
    with local_stack() as stack:
        clickhouse, postgres = ClickHouseServer(stack), PostgresServer(stack)
        backfill = Backfill(place, clickhouse, postgres.database(), BACKFILL_ROWS)
        for number in range(1, rounds + 1):
            _kill_backfill(backfill, number, RAW_ROWS // rounds, spark=number > rounds * 3 // 4)
        backfill.start(spark=True).wait(600).succeeded()
        return backfill.differences()


def _kill_backfill(backfill: Backfill, number: int, share: int, *, spark: bool) -> None:
    """Let it write about its share of the rows, then kill it."""
    epoch_rows = random.choice([share // 10, share // 4, share // 2])
    epochs = random.randint(1, 2 * share // epoch_rows - 1)
    point = f"{random.choice(BACKFILL_POINTS)}@{epochs}" if random.random() < 0.5 else None
    workers = {"EPOCH__DRIVER_ROWS": 0} if spark else {}
    child = backfill.start(point, spark=spark, EPOCH__ROWS=epoch_rows, **workers)
    if point is None:
        child.until_epochs(epochs)
        time.sleep(random.uniform(0, 0.3))
        child.signal(signal.SIGKILL)
    finished = child.wait(600)
    assert finished.code == -signal.SIGKILL, f"exit code {finished.code}\n{finished.stderr[-4000:]}"
    where = point or f"after {child.epochs} epochs"
    print(
        f"{number:>3} {'Spark, ' if spark else ''}{epoch_rows} rows per epoch, {where}: {backfill.written:,} rows",
        flush=True,
    )


def soak_clickhouse_sink(place: Workspace, rounds: int) -> list[str]:
    """Mostly kills of the process; the server is killed or frozen beside some of them."""
    with local_stack() as stack:
        kafka, clickhouse = KafkaBroker(stack), ClickHouseServer(stack)
        into = IntoClickHouse(place, kafka, clickhouse.own_database(), seed=random.getrandbits(32))
        points = shuffled(rounds, CLICKHOUSE_POINTS)
        for number, point in enumerate(points, 1):
            into.send(CHANGES_PER_FAULT)
            child = into.start(f"{point}@{random.randint(1, 2)}")
            told = random.choice([None, None, None, frozen, killed_and_back])
            also = f"; server {told(clickhouse)}" if told else ""
            finished = child.wait()
            assert finished.code == -signal.SIGKILL, f"exit code {finished.code}\n{finished.stderr[-4000:]}"
            print(f"{number:>3} {point}{also}", flush=True)
        last = into.start()
        last.until(lambda: not into.differences(), "each change once")
        last.signal(signal.SIGTERM)
        last.wait().succeeded()
        return into.differences()


def killed_and_back(server: LocalServer) -> str:
    server.kill()
    return back(server)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--faults", type=int, default=20, help="rounds (default: 20)")
    parser.add_argument("--mix", type=counts_of, help="faults and how often each happens, such as crash=10,kill=2")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier soak")
    parser.add_argument("--instances", action="store_true", help="two processes that share a topic")
    parser.add_argument("--postgres", action="store_true", help="the same, into tables, with faults of the servers")
    parser.add_argument("--kafka", action="store_true", help="the same, into topics, with faults of the broker")
    parser.add_argument("--clickhouse", action="store_true", help="a backfill of a table of ClickHouse")
    parser.add_argument("--clickhouse-sink", action="store_true", help="a topic into ClickHouse, with its faults")
    parser.add_argument("--hybrid", action="store_true", help="a ClickHouse table, and the topic it is a copy of")
    parser.add_argument("--rows", type=int, default=200_000, help="with --hybrid: rows of the table (default: 200000)")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    random.seed(seed)
    choose: Choice = partial(mixed, options.mix) if options.mix else partial(shuffled, options.faults)
    rounds = sum(options.mix.values()) if options.mix else options.faults
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="streamling-soak-"))
    modes: dict[str, Callable[[Workspace], list[str]]] = {
        "instances": partial(soak_instances, choose=choose),
        "postgres": partial(soak_postgres, choose=choose),
        "kafka": partial(soak_kafka, choose=choose),
        "clickhouse": partial(soak_backfill, rounds=rounds),
        "clickhouse_sink": partial(soak_clickhouse_sink, rounds=rounds),
        "hybrid": partial(soak_hybrid, choose=choose, rows=options.rows),
    }
    chosen = [run for mode, run in modes.items() if getattr(options, mode)] or [partial(soak, choose=choose)]
    try:
        with workspace(directory) as place:
            problems = chosen[-1](place)
    except AssertionError as error:
        problems = [str(error)]
    for line in problems:
        print(line)
    verdict = f"DIFFERENT, see {directory}" if problems else "exact: every row once in both sinks"
    print(f"{verdict}; {rounds} faults, {time.monotonic() - began:.0f} s, seed {seed}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
