"""What a run has done, when it is over: a block for people, a line for logs, fields for programs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from streamling.cli.places import place_of, place_of_state
from streamling.cli.quantities import clock, number_of, speed
from streamling.cli.terminal import Fragment, print_styled
from streamling.engine.execution import Summary
from streamling.engine.process.signals import listen
from streamling.engine.protocol.progress import Progress
from streamling.spec.pipeline import Role
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType

log = logging.getLogger(__name__)
_LABEL = 11


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of a run, and where to find what it left."""

    rows: int
    epochs: int
    seconds: float
    written: Mapping[str, int]
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Where the rows of a sink are, if that can be said."""
    set_aside: int = 0
    state: str = ""
    resumes: bool = False
    """Whether another run goes on where this one ended."""
    stopped: bool = False

    @property
    def word(self) -> str:
        return "stopped" if self.stopped else "done"

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def report_of(summary: Summary, progress: Progress, settings: Settings) -> Report:
    plan = progress.plan
    sinks = [node.spec for node in plan.nodes if node.spec.role is Role.SINK] if plan is not None else []
    return Report(
        rows=summary.rows,
        epochs=summary.epochs,
        seconds=summary.seconds,
        written=summary.written,
        outputs={spec.name: place for spec in sinks if (place := place_of(spec)) is not None},
        set_aside=sum(node.set_aside for node in progress.snapshot().nodes),
        state=place_of_state(settings),
        resumes=settings.state_backend.backend_type is not BackendType.IN_MEMORY,
        stopped=listen().received is not None,
    )


def show_report(report: Report, *, live: bool) -> None:
    """Beside a live display as a block, else in the log."""
    if live:
        print_styled(sys.stderr, [[("", "")], *block(report)])
        return
    sinks = ", ".join(f"{name} {rows:,}" for name, rows in report.written.items())
    log.info(
        "%s: %s in %s, %.1f s, %.0f rows/s",
        report.word,
        number_of(report.rows, "row"),
        number_of(report.epochs, "epoch"),
        report.seconds,
        report.rows_per_second,
        extra={"fields": {"summary": _fields(report)}},
    )
    log.info("written: %s", sinks or "nothing")
    if report.set_aside:
        log.info("set aside: %s", number_of(report.set_aside, "row"))


def block(report: Report) -> Iterator[list[Fragment]]:
    """A few lines under the table."""
    pace = f"{clock(report.seconds)}, {speed(report.rows_per_second)} rows/s"
    amount = f"{number_of(report.rows, 'row')} in {number_of(report.epochs, 'epoch')}"
    yield _labelled(report.word, "bold yellow" if report.stopped else "bold green", f"{amount}, {pace}")
    names = max(map(len, report.written), default=0)
    numbers = max((len(f"{rows:,}") for rows in report.written.values()), default=0)
    for index, (name, rows) in enumerate(report.written.items()):
        where = report.outputs.get(name, "")
        text = f"{name:<{names}}  {rows:>{numbers},} row{'' if rows == 1 else 's'}" + (f"  {where}" if where else "")
        yield _labelled("" if index else "written", "bold", text)
    if report.set_aside:
        yield _labelled("set aside", "bold yellow", number_of(report.set_aside, "row"))
    again = "run it again and it resumes" if report.resumes else "the next run starts afresh"
    yield _labelled("state", "bold", f"{report.state}; {again}")


def _labelled(label: str, style: str, text: str) -> list[Fragment]:
    return [(label.ljust(_LABEL), style), (text, "")]


def _fields(report: Report) -> dict[str, object]:
    return {**asdict(report), "seconds": round(report.seconds, 3), "rows_per_second": round(report.rows_per_second, 1)}
