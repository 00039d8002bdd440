"""`python -m bench [NAME...]`: the numbers we guard, beside what plain PySpark does in the same run.

Machines differ and are shared: compare ratios, never seconds of two runs.
"""

from __future__ import annotations

import fcntl
import sys
import tempfile
from pathlib import Path

from bench.figure import Figure
from bench.numbers import ALL


def main() -> int:
    names = sys.argv[1:] or list(ALL)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are: {', '.join(ALL)}", file=sys.stderr)
        return 2
    failed = 0
    with Path(tempfile.gettempdir(), "streamling-bench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two measurements at once measure each other
        for name in names:
            found = ALL[name]()
            for figure in [found] if isinstance(found, Figure) else found:
                failed += not figure.holds
                verdict = "ok" if figure.holds else "MISSED"
                numbers = f"{figure.value:>14}   {figure.compared:<44} {figure.bar:<16}"
                print(f"{figure.name:<32} {numbers} {verdict}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
