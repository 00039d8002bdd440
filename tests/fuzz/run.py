"""Mutated inputs for every parser: `python tests/fuzz/run.py [--inputs 2000] [--seed N] [--kind NAME]`.

An input must be understood or rejected with an error of ours, in time, and without showing a secret. What does
anything else is printed with its number, and stored; `--seed`, `--kind` and `--number` run it again. Exit code 1 if
there is one. Each kind runs in a process of its own, so that a crash of a library is a find too.
"""

from __future__ import annotations

import argparse
import faulthandler
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.target import Target, run
from fuzz.targets import TARGETS

# Finds of the same place are printed once; a kind with so many places has one cause more often than not.
MOST_FINDS = 20
# Slow kinds get fewer inputs.
SHARES = {"csv-file": 0.3, "json-file": 0.3, "avro-file": 0.3, "http": 0.2}


class TooSlow(BaseException):
    """The time limit of an input has passed."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise TooSlow

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    # Code in C does not notice the signal.
    faulthandler.dump_traceback_later(4 * seconds, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, previous)


def make(target: Target, seed: int, number: int) -> bytes:
    return target.make(Random(f"{seed} {target.name} {number}"))


def fuzz(kind: str, seed: int, numbers: range, progress: Path) -> int:
    """Run the inputs of one kind. Returns the number of finds."""
    target: Target = TARGETS[kind]()
    unraisable: list[BaseException] = []
    # What a callback of a library raises is printed with a traceback, and lost.
    sys.unraisablehook = lambda event: unraisable.append(event.exc_value or Exception(event.err_msg))
    verdicts: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for number in numbers:
        data = make(target, seed, number)
        progress.write_text(str(number))
        try:
            with time_limit(target.seconds):
                verdict = run(target, data)
            if unraisable:
                raise unraisable.pop()
            verdicts[verdict] += 1
        except (Exception, TooSlow) as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}"
            places[place] += 1
            if places[place] == 1:
                file = progress.with_name(f"{kind}-{number}")
                file.write_bytes(data)
                print(f"FIND {kind} number {number}: {place}: {str(error)[:300]}\n  input: {file}", flush=True)
        if len(places) >= MOST_FINDS:
            break
    target.close()
    common = ", ".join(f"{code} {count}" for code, count in verdicts.most_common(4))
    print(
        f"{kind:<12} {sum(verdicts.values()):>6} inputs as they should be ({common}), {sum(places.values())} finds",
        flush=True,
    )
    return sum(places.values())


def fuzz_apart(kind: str, seed: int, inputs: int, directory: Path) -> int:
    """As `fuzz`, in a process of its own. Returns the number of finds."""
    command = [
        sys.executable,
        __file__,
        "--kind",
        kind,
        "--seed",
        str(seed),
        "--inputs",
        str(inputs),
        "--here",
        str(directory),
    ]
    code = subprocess.run(command).returncode
    if code not in (0, 1):
        number = (directory / "progress").read_text()
        print(f"FIND {kind} number {number}: the process ended with {code}", flush=True)
    return int(code != 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--inputs", type=int, default=2_000, help="inputs of each kind; slow kinds get a part (default: 2000)"
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats the inputs of an earlier run")
    parser.add_argument("--kind", choices=list(TARGETS), default=None, help="only this kind")
    parser.add_argument("--number", type=int, default=None, help="only this input of the kind")
    parser.add_argument("--here", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    directory = Path(options.here or tempfile.mkdtemp(prefix="streamling-finds-"))
    if options.kind and (options.here or options.number is not None):
        numbers = range(options.inputs) if options.number is None else range(options.number, options.number + 1)
        return int(fuzz(options.kind, seed, numbers, directory / "progress") > 0)
    print(f"seed {seed}", flush=True)
    began, finds = time.monotonic(), 0
    for kind in [options.kind] if options.kind else TARGETS:
        finds += fuzz_apart(kind, seed, max(1, int(options.inputs * SHARES.get(kind, 1))), directory)
    print(f"{'FINDS, see ' + str(directory) if finds else 'no finds'}; {time.monotonic() - began:.0f} s, seed {seed}")
    return int(finds > 0)


if __name__ == "__main__":
    sys.exit(main())
