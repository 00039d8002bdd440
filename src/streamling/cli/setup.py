"""`streamling setup`: prepares the machine for fast starts."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.failure import attempt
from streamling.cli.options import Common, Config, Quiet, Traceback, Verbose, settings_of

EXAMPLES = """
streamling setup            once per machine; saves seconds at every start
streamling setup --force    again, for instance after a crash of Java
"""
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def setup(
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Train again, even if the archive exists.")] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> int:
    """Prepare this machine for fast starts. Trains a class archive of Java, and compiles the sandbox of scripts."""
    common = Common(config, verbose, quiet, traceback)

    def train_archive() -> int:
        settings_of(common)
        from streamling.engine.process.archive import archive_path
        from streamling.engine.process.java import find_java
        from streamling.engine.process.training import train
        from streamling.transforms.script.modules import compile_all

        compile_all()
        java = find_java()
        path = archive_path(java)
        if path.exists() and not force:
            print(f"ready: {path}")
            return 0
        print(f"training the class archive for {java} (takes about a minute, once) ...", flush=True)
        began = time.monotonic()
        train(java, path, verbose=verbose)
        print(f"ready: {path} ({path.stat().st_size / 1e6:.0f} MB, {time.monotonic() - began:.0f} s)")
        return 0

    return attempt(train_archive, with_trace=traceback)
