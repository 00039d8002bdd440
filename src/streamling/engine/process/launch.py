"""Launching the JVM of a run, as early as possible.

Java takes a second to boot, and loading the settings takes a third of a second. Only a few settings matter for the
launch (memory, flags, jars), and they can only come from a file or the environment: if neither has any, the JVM starts
before anything else is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamling.clients.open_files import raise_file_limit
from streamling.engine.process.archive import find_archive
from streamling.engine.process.java import find_java
from streamling.engine.process.jvm import STOP_TIMEOUT_S, Jvm
from streamling.engine.process.session import spark_conf
from streamling.engine.process.signals import listen
from streamling.errors import StreamlingError
from streamling.spec.config_names import DEFAULT_NAME, SUFFIXES

# The compiler that optimizes pays off only in runs of minutes.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
TRAIN_VARIABLE = "STREAMLING_TRAIN_ARCHIVE"
# Options that make no difference to the JVM.
_HARMLESS = ("-", "-q", "--quiet", "--traceback", "--node", "--rows", "--seconds", "--format")
_early: Jvm | None = None


def launch(conf: Mapping[str, str], *, verbose: bool) -> Jvm:
    """The JVM of a run, which may have been launched early. In a training run it writes the class archive on exit."""
    global _early
    jvm, _early = _early, None
    if jvm is not None:
        return jvm
    raise_file_limit()
    java, draft = find_java(), os.environ.get(TRAIN_VARIABLE)
    if draft:
        return Jvm.launch(java, conf, extra_flags=(f"-XX:ArchiveClassesAtExit={draft}",), verbose=verbose)
    return Jvm.launch(java, conf, archive=find_archive(java), verbose=verbose)


def launch_early(arguments: Sequence[str], *, quick: bool = False) -> None:
    """Launch for a command with these arguments, unless a setting could require another JVM than the default. `quick`:
    for a short run.

    If the run then does not start, the JVM ends with this process.
    """
    global _early
    plain = all(not argument.startswith("-") or argument.split("=")[0] in _HARMLESS for argument in arguments)
    configured = any(Path(f"{DEFAULT_NAME}{suffix}").exists() for suffix in SUFFIXES)
    named = any(name.upper().startswith("STREAMLING__SPARK") for name in os.environ)
    if plain and not configured and not named and TRAIN_VARIABLE not in os.environ:
        listen()  # from now on, so that a signal before the run starts is not lost
        try:
            java = {"spark.driver.extraJavaOptions": QUICK_JAVA} if quick else {}
            _early = launch(spark_conf(java), verbose=False)
        except StreamlingError:
            return  # the run fails with the same error and reports it


def stop_timeout() -> float:
    """Seconds that the JVM may take to end; writing an archive takes 20 s of CPU time."""
    return 180.0 if TRAIN_VARIABLE in os.environ else STOP_TIMEOUT_S
