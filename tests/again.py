"""Runs the tests that have just failed again, one at a time. `make test` calls it.

Thousands of tests wait for servers, and kill some, while others keep every core busy. One that fails then, and passes
alone, is printed as unstable: it, or what it tests, depends on the load. That is a defect to mend, but it need not hold
up a change that has not caused it. Many failures are no coincidence, and the tests that count rows after a fault get no
second chance: a row that is lost once in a hundred runs is lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 3
"""More failures than that have a cause in common."""
FAILED = Path(".pytest_cache/v/cache/lastfailed")
COUNTS_ROWS = "tests/faults/"


def reason_to_end(failed: Sequence[str]) -> str | None:
    """Why these tests are not run again."""
    if not failed:
        return "pytest has not noted which tests failed"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed"
    counting = next((test for test in failed if test.startswith(COUNTS_ROWS)), None)
    return f"{counting} failed" if counting is not None else None


def main() -> int:
    failed = list(json.loads(FAILED.read_text())) if FAILED.exists() else []
    reason = reason_to_end(failed)
    if reason is not None:
        print(f"\nnot run again: {reason}")
        return 1
    print(f"\n==> again, alone: {', '.join(failed)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *failed], check=False).returncode
    if code == 0:
        for test in failed:
            print(f"UNSTABLE: {test} failed beside other tests and passed alone: mend it, or what it tests")
    return code


if __name__ == "__main__":
    sys.exit(main())
