"""`python -m bench.compare COMMIT [NAME...]`: our own numbers at another commit and now, one after the other.

Both are checked out into directories of their own, so that the tree can be edited meanwhile; what is not committed is
not measured. The present benchmarks run the code of both. A round measures both in turn; the ratio is that of the
medians, above 1 where we are better now.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import files, kafka, numbers, postgres
from bench.orders_topic import changes, filled, mixed, servers
from bench.transform import transform_rate

_ROOT = Path(__file__).parents[1]
_BAR = 0.95
_TOPIC_ROWS = 2_000_000
_TABLE_ROWS = 1_000_000
_FILE_MB = 500
# Of these, less is better.
_COSTS = {"first-row s", "small-epoch ms", "idle share"}

Measured = dict[str, float]


def _kafka() -> Measured:
    with servers() as stack:
        place = filled(stack, mixed, _TOPIC_ROWS)
        runs = {name: kafka.run_ours(place, _TOPIC_ROWS, query) for name, query in kafka.QUERIES.items()}
    return {f"kafka {name}, {what}": getattr(run, what) for name, run in runs.items() for what in ("steady", "wall")}


def _kafka_json() -> Measured:
    with servers() as stack:
        place = filled(stack, mixed, _TOPIC_ROWS, as_json=True)
        run = kafka.run_ours(place, _TOPIC_ROWS, kafka.QUERIES["projection"], as_json=True)
    return {f"kafka json, {what}": getattr(run, what) for what in ("steady", "wall")}


def _postgres() -> Measured:
    with servers() as stack:
        runs = postgres.run_ours(filled(stack, changes, _TABLE_ROWS), _TABLE_ROWS)
    return {f"postgres {name}, {what}": getattr(run, what) for name, run in runs.items() for what in ("steady", "wall")}


def _files() -> Measured:
    found = {}
    for format_ in ("csv", "parquet"):
        run, rows = files.run_ours(files.sample(_FILE_MB, format_), format_)
        found[f"files {format_}"] = rows / run.seconds
    return found


_NUMBERS: dict[str, Callable[[], Measured]] = {
    "first-row": lambda: {"first-row s": numbers.seconds_to_first_row()},
    "small-epoch": lambda: {"small-epoch ms": numbers.small_epoch_ms()},
    "throughput": lambda: {"throughput": numbers.rows_per_second()},
    "idle": lambda: {"idle share": numbers.idle_share()[0]},
    "transform": lambda: {"transform": transform_rate(2_000_000, stateless=True)[0]},
    "files": _files,
    "kafka": _kafka,
    "kafka-json": _kafka_json,
    "postgres": _postgres,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(_NUMBERS))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    names = arguments.names or list(_NUMBERS)
    if unknown := [name for name in names if name not in _NUMBERS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are: {', '.join(_NUMBERS)}")
    worst = 1.0
    lock_path = Path(tempfile.gettempdir(), "streamling-bench.lock")
    with lock_path.open("w") as lock, _checkout(arguments.commit) as before, _checkout("HEAD") as after:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            for what, ratio, shown in _ratios(_NUMBERS[name], before, after, arguments.rounds):
                worst = min(worst, ratio)
                print(f"{what:<32} {ratio:.2f} x   {shown}", flush=True)
    return 1 if worst < _BAR else 0


@contextmanager
def _checkout(commit: str) -> Iterator[Path]:
    """The packages of a commit."""
    with tempfile.TemporaryDirectory(prefix="streamling-compare-") as directory:
        subprocess.run(["git", "clone", "--quiet", "--shared", str(_ROOT), directory], check=True)
        hash_ = subprocess.run(
            ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"],
            cwd=_ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        subprocess.run(["git", "checkout", "--quiet", "--detach", hash_], cwd=directory, check=True)
        yield Path(directory, "src")


def _ratios(
    measure: Callable[[], Measured], before: Path, after: Path, rounds: int
) -> Iterator[tuple[str, float, str]]:
    found: dict[Path, list[Measured]] = {before: [], after: []}
    for number in range(rounds):
        # Whoever comes second finds files in memory and a warmer machine: take turns.
        for tree in (before, after) if number % 2 == 0 else (after, before):
            os.environ["PYTHONPATH"] = str(tree)
            found[tree].append(measure())
    for what in found[before][0]:
        old, new = (sorted(measured[what] for measured in found[tree]) for tree in (before, after))
        ratio = statistics.median(new) / statistics.median(old)
        shown = "  :  ".join(" ".join(f"{value:,.4g}" for value in values) for values in (new, old))
        yield what, 1 / ratio if what in _COSTS else ratio, f"now : before   {shown}"


if __name__ == "__main__":
    sys.exit(main())
