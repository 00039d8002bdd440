"""The summary of a run: a block for people, lines for logs, fields for programs."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from streamling.cli.quantities import clock, number_of, speed
from streamling.cli.terminal import Fragment, print_styled
from streamling.engine.execution import Summary
from streamling.engine.process.signals import listen
from streamling.engine.protocol.progress import Progress
from streamling.spec.pipeline import Role
from streamling.spec.places import place_of, place_of_state
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType

log = logging.getLogger(__name__)
_LABEL = 11
_NOTHING_NEW = "nothing new: the sources have only rows that earlier runs have processed"
# Fields that are not part of the summary for programs.
_TEXT_ONLY = ("reset_command",)


@dataclass(frozen=True, slots=True)
class RunReport:
    """The numbers of a run, and where its output is."""

    rows: int
    epochs: int
    seconds: float
    start_seconds: float
    """The part of `seconds` before the first row could be read."""
    written: Mapping[str, int]
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Where the rows of a sink are, by sink name; sinks without a place are left out."""
    set_aside: int = 0
    state: str = ""
    resumes: bool = False
    """Whether the next run continues where this one ended."""
    stopped: bool = False
    reset_command: str = "streamling state reset"
    """The command that makes the next run start over."""

    @property
    def word(self) -> str:
        return "stopped" if self.stopped else "done"

    @property
    def rows_per_second(self) -> float:
        """The average since the start."""
        return self.rows / max(self.seconds - self.start_seconds, 0.001)

    @property
    def has_nothing_new(self) -> bool:
        """The run has ended by itself without an epoch, because of the stored positions."""
        return self.epochs == 0 and self.resumes and not self.stopped


def report_of(summary: Summary, progress: Progress, settings: Settings, config: str | None = None) -> RunReport:
    """`config`: the option of the command line, which a reset of the same state needs too."""
    plan, snapshot = progress.plan, progress.snapshot()
    sinks = [node.spec for node in plan.nodes if node.spec.role is Role.SINK] if plan is not None else []
    option = f" --config {shlex.quote(config)}" if config else ""
    return RunReport(
        rows=summary.rows,
        epochs=summary.epochs,
        seconds=summary.seconds,
        start_seconds=snapshot.start_seconds,
        written=summary.written,
        outputs={spec.name: place for spec in sinks if (place := place_of(spec)) is not None},
        set_aside=sum(node.rejected for node in snapshot.nodes),
        state=place_of_state(settings),
        resumes=settings.state_backend.backend_type is not BackendType.IN_MEMORY,
        stopped=listen().received is not None,
        reset_command=f"streamling state reset{option}",
    )


def print_block(report: RunReport) -> None:
    """Print the summary below the table of a run."""
    print_styled(sys.stderr, [[("", "")], *block(report)])


def log_report(report: RunReport) -> None:
    """Log the summary, if there is no table."""
    sinks = ", ".join(f"{name} {rows:,}" for name, rows in report.written.items())
    log.info(
        "%s: %s in %s, %.1f s (start %.1f s), %.0f rows/s",
        report.word,
        number_of(report.rows, "row"),
        number_of(report.epochs, "epoch"),
        report.seconds,
        report.start_seconds,
        report.rows_per_second,
        extra={"fields": {"summary": _fields(report)}},
    )
    log.info("written: %s", sinks or "nothing")
    if report.set_aside:
        log.info("set aside: %s", number_of(report.set_aside, "row"))
    if report.has_nothing_new:
        log.info("%s; to start over: %s", _NOTHING_NEW, report.reset_command)


def block(report: RunReport) -> Iterator[list[Fragment]]:
    """A few lines below the table, whose first line says already whether the run is done or was stopped."""
    start = f"start {report.start_seconds:.1f} s"
    pace = f"{clock(report.seconds)} ({start}), {speed(report.rows_per_second)} rows/s"
    amount = f"{number_of(report.rows, 'row')} in {number_of(report.epochs, 'epoch')}"
    yield _labelled("read", "bold", f"{amount}, {pace}")
    if report.has_nothing_new:
        yield _labelled("", "", _NOTHING_NEW)
    name_width = max(map(len, report.written), default=0)
    number_width = max((len(f"{rows:,}") for rows in report.written.values()), default=0)
    for index, (name, rows) in enumerate(report.written.items()):
        place = report.outputs.get(name, "")
        text = f"{name:<{name_width}}  {rows:>{number_width},} row{'' if rows == 1 else 's'}"
        yield _labelled("" if index else "written", "bold", text + (f"  {place}" if place else ""))
    if report.set_aside:
        yield _labelled("set aside", "bold yellow", number_of(report.set_aside, "row"))
    if report.has_nothing_new:
        then = f"to start over: {report.reset_command}"
    else:
        then = "run it again and it resumes" if report.resumes else "the next run starts over"
    yield _labelled("state", "bold", f"{report.state}; {then}")


def _labelled(label: str, style: str, text: str) -> list[Fragment]:
    return [(label.ljust(_LABEL), style), (text, "")]


def _fields(report: RunReport) -> dict[str, object]:
    fields = {name: value for name, value in asdict(report).items() if name not in _TEXT_ONLY}
    rounded = {
        "seconds": round(report.seconds, 3),
        "start_seconds": round(report.start_seconds, 3),
        "rows_per_second": round(report.rows_per_second, 1),
    }
    return fields | rounded
