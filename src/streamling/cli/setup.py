"""`streamling setup`: what makes later starts fast."""

from __future__ import annotations

import argparse
import sys
import time

from streamling.cli.failure import rendered
from streamling.cli.options import add_common, settings_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("--force", action="store_true", help="train again even if the archive is there")


def execute(options: argparse.Namespace) -> int:
    try:
        settings_of(options)
        from streamling.engine.archive import archive_path
        from streamling.engine.java import find_java
        from streamling.engine.training import train

        java = find_java()
        path = archive_path(java)
        if path.exists() and not options.force:
            print(f"ready: {path}")
            return 0
        print(f"training the class archive for {java} (about a minute, once) ...", flush=True)
        began = time.monotonic()
        train(java, path, verbose=options.verbose)
        print(f"ready: {path} ({path.stat().st_size / 1e6:.0f} MB, {time.monotonic() - began:.0f} s)")
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        print(rendered(error, with_trace=options.traceback), file=sys.stderr)
        return 1
    return 0
