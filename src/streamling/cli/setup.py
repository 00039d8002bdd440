"""`streamling setup`: what makes later starts fast."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.options import Common, Config, Quiet, Traceback, Verbose, settings_of

EXAMPLES = """
streamling setup            once per machine; makes starts twice as fast
streamling setup --force    once more, for instance after a crash of Java
"""
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def setup(
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Train again even if the archive is there.")] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Prepare this machine. Trains the class archive that makes starts fast."""
    common = Common(config, verbose, quiet, traceback)
    try:
        settings_of(common)
        from streamling.engine.process.archive import archive_path
        from streamling.engine.process.java import find_java
        from streamling.engine.process.training import train

        java = find_java()
        path = archive_path(java)
        if path.exists() and not force:
            print(f"ready: {path}")
            return 0
        print(f"training the class archive for {java} (about a minute, once) ...", flush=True)
        began = time.monotonic()
        train(java, path, verbose=verbose)
        print(f"ready: {path} ({path.stat().st_size / 1e6:.0f} MB, {time.monotonic() - began:.0f} s)")
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        from streamling.cli.failure import show

        show(error, with_trace=traceback)
        return 1
    return 0
