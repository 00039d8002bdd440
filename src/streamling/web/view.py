"""What the admin API knows about a run, as documents. No HTTP in here."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from streamling.engine.execution import Execution
from streamling.engine.protocol.facts import describe, facts_of
from streamling.engine.protocol.health import Health
from streamling.engine.protocol.progress import Phase, Progress
from streamling.errors import BugError, InvalidPipeline, StreamlingError
from streamling.letters.letter import Letter
from streamling.letters.store import letter_stores
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.mask import mask_text
from streamling.spec.places import place_of
from streamling.spec.settings import Settings
from streamling.telemetry.inspection import Samples
from streamling.web.documents import (
    Column,
    DeadLetters,
    Epochs,
    FatalError,
    LetterCount,
    LetterLine,
    Pipeline,
    PipelineNode,
    Readiness,
    RunProgress,
    State,
)
from streamling.web.masked import masked_options, masked_positions

# Dead letters are counted by reading them: the newest, so many at most, and for so many seconds.
_MOST_LETTERS = 10_000
_LETTERS_S = 5.0
_LISTED_LETTERS = 100


class NotYet(Exception):
    """The run has not got far enough, or has ended: the message says so."""


@dataclass
class RunView:
    """A run, as other threads may see it. `samples` is None if rows are not sampled."""

    file: str
    settings: Settings
    execution: Execution
    progress: Progress
    health: Health
    samples: Samples | None = None

    def readiness(self, *, in_detail: bool = True) -> Readiness:
        """Without detail: neither the node nor the reason, which may quote other systems."""
        snapshot = self.progress.snapshot()
        phase = snapshot.phase
        if self.progress.failure is not None:
            error = fatal_error(self.progress.failure)
            found = Readiness(False, phase, error.node, error.message)
        elif phase is Phase.STARTING:
            node, what = self.health.starting()
            reason = f"the pipeline is starting: {what}" if what else "the pipeline is starting"
            found = Readiness(False, phase, node, reason, round(snapshot.seconds, 1))
        elif phase is not Phase.RUNNING:
            found = Readiness(False, phase, None, f"the pipeline is {phase.value}")
        elif (stall := self.health.stall()) is not None:
            found = Readiness(False, phase, stall.node, stall.reason, round(stall.seconds, 1))
        else:
            found = Readiness(True, phase)
        return found if in_detail else Readiness(found.ready, phase)

    def error(self) -> FatalError | None:
        failure = self.progress.failure
        return None if failure is None else fatal_error(failure)

    def pipeline(self) -> Pipeline:
        plan = self._plan
        return Pipeline(self.settings.application_id, self.file, [self._node(plan, node) for node in plan.nodes])

    def run_progress(self) -> RunProgress:
        snapshot = self.progress.snapshot()
        return RunProgress(self.settings.application_id, self.file, self.progress.places(), snapshot)

    def epochs(self) -> Epochs:
        return Epochs(list(self.progress.epochs()))

    def state(self) -> State:
        journal = self.execution.journal
        if journal is None:
            raise NotYet("the state backend is not open: the pipeline is starting, or has ended")
        return State(self.settings.application_id, masked_positions(journal.positions()))

    def metrics(self) -> str:
        from streamling.telemetry.prometheus import render

        self.execution.metrics.start()
        return render(self.execution.metrics)

    def dead_letters(self) -> DeadLetters:
        application, deadline = self.settings.application_id, time.monotonic() + _LETTERS_S
        stores = letter_stores(self._plan, self.settings)
        places = {store.place: store for store in stores.values()}.values()
        try:
            found = [store.newest(application, _MOST_LETTERS, deadline) for store in places]
        finally:
            for store in stores.values():
                store.close()
        letters = sorted(
            (letter for newest in found for letter in newest.letters),
            key=lambda letter: (letter.timestamp, letter.epoch),
            reverse=True,
        )
        complete = all(newest.complete for newest in found) and len(letters) <= _MOST_LETTERS
        letters = letters[:_MOST_LETTERS]
        counts = Counter((letter.node, letter.reason_code, letter.status) for letter in letters)
        return DeadLetters(
            complete,
            [LetterCount(*key, number) for key, number in sorted(counts.items())],
            [_letter_line(letter) for letter in letters[:_LISTED_LETTERS]],
        )

    @property
    def _plan(self) -> Plan:
        plan = self.progress.plan
        if plan is None:
            raise NotYet("the pipeline is not planned yet")
        return plan

    def _node(self, plan: Plan, node: PlannedNode) -> PipelineNode:
        if node.id not in self._known_nodes:
            described = describe(plan, node, facts_of(plan, node, self.settings))
            columns = described.pop("columns")
            self._known_nodes[node.id] = PipelineNode(
                **described,
                columns=None if columns is None else [Column(**column) for column in columns],
                place=place_of(node.spec),
                options=masked_options(node.spec.options),
            )
        return self._known_nodes[node.id]

    @cached_property
    def _known_nodes(self) -> dict[str, PipelineNode]:
        """A plan does not change; to describe a node, its connector is built."""
        return {}


def fatal_error(error: BaseException) -> FatalError:
    node, message, retriable = None, str(error) or type(error).__name__, False
    if isinstance(error, StreamlingError):
        node, message, retriable = error.node, error.message, error.retriable
    if isinstance(error, InvalidPipeline):
        message = "; ".join(problem.message for problem in error.problems)
    internal = isinstance(error, BugError) or not isinstance(error, StreamlingError)
    return FatalError(node, mask_text(message), internal, retriable)


def _letter_line(letter: Letter) -> LetterLine:
    return LetterLine(
        letter.id,
        letter.node,
        letter.stage,
        letter.reason_code,
        mask_text(letter.reason_text),
        mask_text(letter.place),
        letter.epoch,
        letter.timestamp,
        letter.status,
    )
