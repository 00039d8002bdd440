"""A long run of random faults against one pipeline: `python tests/faults/soak.py --faults 20 [--seed N]`.

Each round starts the pipeline, waits for a random moment and does something to it: kills the driver or the JVM, asks
for a stop, suspends the process while another takes over. At the end the rows in both sinks are compared with the
model. Exit code 1 if one is missing or doubled, or if a process ended in a way it should not.

With `--instances` two processes share a topic and write files; the broker, the topic and the disk have faults, too.
With `--postgres` they keep tables and positions in Postgres, and the database has faults, too.
With `--kafka` they write topics of the same broker; readers of committed messages see each change once, in order.

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
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from streamling.dev.stack import Stack
from streamling.errors import PermanentError
from support.harness import Child, Workspace, workspace
from support.into_files import IntoFiles
from support.into_tables import POINTS, TABLES, IntoTables
from support.into_topics import POINTS as TOPIC_POINTS
from support.into_topics import IntoTopics
from support.kafka_broker import KafkaBroker
from support.local_stack import LocalServer, local_stack
from support.postgres_server import PostgresServer
from support.two_instances import TwoInstances
from support.two_sinks import differences, write

# More than the longest rounds can deliver at this rate; the last run has no rate and takes the rest at once.
ROWS_PER_FAULT = 6000
RATE = 300
DISK_BYTES = 1 << 30
# A server that has not answered in its time is stopped; on a busy machine the next start may be quick enough.
START_ATTEMPTS = 3
Fault = Callable[[], str]
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
    child.signal(signal.SIGTERM)
    return _ended(child, 0)


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


def shuffled(rounds: int, faults: Sequence[Callable[..., str]]) -> list[Callable[..., str]]:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--faults", type=int, default=20, help="rounds (default: 20)")
    parser.add_argument("--mix", type=counts_of, help="faults and how often each happens, such as crash=10,kill=2")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier soak")
    parser.add_argument("--instances", action="store_true", help="two processes that share a topic")
    parser.add_argument("--postgres", action="store_true", help="the same, into tables, with faults of the servers")
    parser.add_argument("--kafka", action="store_true", help="the same, into topics, with faults of the broker")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    random.seed(seed)
    choose: Choice = partial(mixed, options.mix) if options.mix else partial(shuffled, options.faults)
    rounds = sum(options.mix.values()) if options.mix else options.faults
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="streamling-soak-"))
    chosen = soak
    for wanted, other in (
        (options.instances, soak_instances),
        (options.postgres, soak_postgres),
        (options.kafka, soak_kafka),
    ):
        chosen = other if wanted else chosen
    try:
        with workspace(directory) as place:
            problems = chosen(place, choose)
    except AssertionError as error:
        problems = [str(error)]
    for line in problems:
        print(line)
    verdict = f"DIFFERENT, see {directory}" if problems else "exact: every row once in both sinks"
    print(f"{verdict}; {rounds} faults, {time.monotonic() - began:.0f} s, seed {seed}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
