"""A long run of random faults against one pipeline: `python tests/faults/soak.py --kills 20 [--seed N]`.

With `--instances` two processes share a topic instead: they are killed in turn, and one is suspended for a minute.

Each round starts the pipeline, waits for a random moment and does something to it: kills the driver or the JVM, asks
for a stop, suspends the process while another takes over. At the end the rows in both sinks are compared with the
model. Exit code 1 if one is missing or doubled, or if a process ended in a way it should not.
"""

from __future__ import annotations

import argparse
import random
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "pipelines"))
sys.path.insert(0, str(Path(__file__).parents[1] / "services"))

from harness import Child, Workspace, workspace
from kafka_broker import KafkaBroker
from local_stack import local_stack
from two_instances import TwoInstances
from two_sinks import differences, write

# More than the longest rounds can deliver at this rate; the last run has no rate and takes the rest at once.
ROWS_PER_KILL = 6000
RATE = 300
SUSPENDED_S = 60.0


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
    """Suspend it, let another work, wake it up beside the other, then stop or kill both."""
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
    """A process that came to its natural end before the fault reached it has ended well, too."""
    finished = child.wait()
    assert finished.code in (code, 0), f"exit code {finished.code} instead of {code}\n{finished.stderr[-4000:]}"
    return f"exit {finished.code} after {child.epochs} epochs"


def soak(place: Workspace, kills: int) -> list[str]:
    """The differences that are left in the end."""
    rows = kills * ROWS_PER_KILL
    write(place, rows, rate=RATE)
    # Every fault at least once, if there are enough rounds.
    faults = [FAULTS[n % len(FAULTS)] for n in range(kills)]
    random.shuffle(faults)
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


def soak_instances(place: Workspace, kills: int) -> list[str]:
    with local_stack() as stack:
        return TwoInstances(place, KafkaBroker(stack)).take_turns(kills, SUSPENDED_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=20, help="rounds (default: 20)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier soak")
    parser.add_argument("--instances", action="store_true", help="two processes that share a topic")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    random.seed(seed)
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="streamling-soak-"))
    try:
        with workspace(directory) as place:
            found = (soak_instances if options.instances else soak)(place, options.kills)
    except AssertionError as error:
        found = [str(error)]
    for line in found:
        print(line)
    verdict = f"DIFFERENT, see {directory}" if found else "exact: every row once in both sinks"
    print(f"{verdict}; {options.kills} kills, {time.monotonic() - began:.0f} s, seed {seed}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
