"""`streamling doctor`: what is installed, what is missing, how to get it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.options import Config, Traceback
from streamling.cli.terminal import Fragment, print_styled

if TYPE_CHECKING:
    from streamling.cli.health import Finding

EXAMPLES = """
streamling doctor                  exit code 1 if something needed is missing
streamling doctor --start          also start Spark and run a tiny job
streamling doctor --format json    for programs
"""
_STYLES = {"ok": "green", "warning": "bold yellow", "missing": "bold red"}
app = new_app()


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


@app.command(cls=Command, epilog=EXAMPLES)
def doctor(
    config: Config = None,
    start: Annotated[bool, typer.Option("--start", help="Start Spark and run a tiny job.")] = False,
    format_: Annotated[Format, typer.Option("--format", help="Text for people, JSON for programs.")] = Format.TEXT,
    traceback: Traceback = False,
) -> int:
    """Say what is installed, what is missing, and how to get it."""
    try:
        from streamling.cli.health import Status, examined

        findings = list(examined(config))
        sound = all(finding.status is not Status.MISSING for finding in findings)
        if start and sound:
            findings.append(_started(config))
            sound = findings[-1].status is not Status.MISSING
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        from streamling.cli.failure import show

        show(error, with_trace=traceback)
        return 1
    if format_ is Format.JSON:
        print(json.dumps({"ok": sound, "checks": [asdict(f) for f in findings]}, indent=2, ensure_ascii=False))
    else:
        print_styled(sys.stdout, _lines(findings, sound=sound))
    return 0 if sound else 1


def _lines(findings: Sequence[Finding], *, sound: bool) -> Iterator[list[Fragment]]:
    width = max(len(finding.name) for finding in findings)
    for section, members in groupby(findings, key=lambda finding: finding.section):
        yield [(section, "bold")]
        for finding in members:
            status = finding.status.value
            yield [(f"  {status:<7}", _STYLES[status]), (f"  {finding.name:<{width}}  ", ""), (finding.text, "")]
            if finding.hint:
                yield [(" " * (width + 13) + f"hint: {finding.hint}", "cyan")]
    warnings = sum(finding.status.value == "warning" for finding in findings)
    missing = sum(finding.status.value == "missing" for finding in findings)
    yield [("", "")]
    if not sound:
        yield [(f"{missing} missing", "bold red"), (f", {warnings} to look at", "")]
    else:
        yield [("ready to run", "bold green"), (f", {warnings} to look at" if warnings else "", "")]


def _started(config: str | None) -> Finding:
    """How long Spark takes to start, and that it computes."""
    import os
    from pathlib import Path

    from streamling.cli.health import Finding, Status
    from streamling.engine.process.launch import launch
    from streamling.engine.process.session import open_session, spark_conf
    from streamling.spec.settings import load_settings

    settings = load_settings(config=config, environ=os.environ, cwd=Path.cwd()).settings
    conf = spark_conf(settings.spark, application="doctor")
    began = time.monotonic()
    jvm = None
    try:
        jvm = launch(conf, verbose=False)
        session = open_session(jvm, conf)
        ready = time.monotonic()
        counted = session.range(1000).count()
        done = time.monotonic()
    except Exception as error:  # whatever it is, it is what was asked for
        return Finding(
            "Spark", "start", Status.MISSING, str(error).splitlines()[0], "-v of a run shows Spark's own log"
        )
    finally:
        if jvm is not None:
            jvm.stop()
    text = f"ready after {ready - began:.1f} s, counted {counted:,} rows in {done - ready:.1f} s"
    return Finding("Spark", "start", Status.OK, text)
