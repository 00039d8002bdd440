"""`streamling doctor`: what is installed, what is missing, and how to install it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.failure import attempt
from streamling.cli.options import Config, Format, OutputFormat, Traceback
from streamling.cli.quantities import number_of
from streamling.cli.terminal import Fragment, print_styled
from streamling.spec.mask import mask_text

if TYPE_CHECKING:
    from streamling.cli.health import Finding

EXAMPLES = """
streamling doctor                  exit code 1 if something needed is missing
streamling doctor --start          also start Spark and run a small job
streamling doctor --format json    for programs
"""
_STYLES = {"ok": "green", "warning": "bold yellow", "missing": "bold red"}
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def doctor(
    config: Config = None,
    start: Annotated[bool, typer.Option("--start", help="Also start Spark and run a small job.")] = False,
    format_: OutputFormat = Format.TEXT,
    traceback: Traceback = False,
) -> int:
    """Show what is installed, what is missing, and how to install it."""
    return attempt(lambda: _print_findings(config, format_, start=start), with_trace=traceback)


def _print_findings(config: str | None, format_: Format, *, start: bool) -> int:
    from streamling.cli.health import FindingStatus, examine

    findings = list(examine(config))
    ready = all(finding.status is not FindingStatus.MISSING for finding in findings)
    if start and ready:
        findings.append(_start_spark(config))
        ready = findings[-1].status is not FindingStatus.MISSING
    if format_ is Format.JSON:
        print(json.dumps({"ok": ready, "checks": [asdict(f) for f in findings]}, indent=2, ensure_ascii=False))
    else:
        print_styled(sys.stdout, _lines(findings, ready=ready))
    return 0 if ready else 1


def _lines(findings: Sequence[Finding], *, ready: bool) -> Iterator[list[Fragment]]:
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
    if not ready:
        yield [(f"{missing} missing", "bold red"), (f", {number_of(warnings, 'warning')}", "")]
    else:
        yield [("ready to run", "bold green"), (f", {number_of(warnings, 'warning')}" if warnings else "", "")]


def _start_spark(config: str | None) -> Finding:
    """Start Spark and run a job. The finding has the duration of both."""
    import os
    from pathlib import Path

    from streamling.cli.health import Finding, FindingStatus
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
        started = time.monotonic()
        rows = session.range(1000).count()
        done = time.monotonic()
    except Exception as error:  # the finding shows it, whatever it is
        hint = "run a pipeline with -v to see the log of Spark"
        return Finding("Spark", "start", FindingStatus.MISSING, mask_text(str(error)).splitlines()[0], hint)
    finally:
        if jvm is not None:
            jvm.stop()
    text = f"ready after {started - began:.1f} s, counted {rows:,} rows in {done - started:.1f} s"
    return Finding("Spark", "start", FindingStatus.OK, text)
