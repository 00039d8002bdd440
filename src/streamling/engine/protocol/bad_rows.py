"""What becomes of bad rows: the `on_error` of the node they stand at.

`fail` ends the run and names the row. `skip` counts it, and says so now and then. `dead_letter` stores it, durable
before the epoch is finalized: the positions never move past a row that is neither delivered nor kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from streamling.connector import BadRow, Epoch, Json, Report
from streamling.engine.protocol.dead_letters import LetterBox, letter
from streamling.engine.protocol.progress import Progress
from streamling.errors import DATA_ERROR, PermanentError
from streamling.plan.pipeline import Plan
from streamling.spec.pipeline.options import OnError

log = logging.getLogger(__name__)

# A poisoned input must be noticed, and must not drown everything else.
_REMIND_S = 60.0


class Stage(StrEnum):
    DECODE = "decode"
    TRANSFORM = "transform"
    WRITE = "write"


def rejection(node: str, bad: BadRow) -> PermanentError:
    """The error of a bad row under `on_error: fail`."""
    text = f"{place}: {bad.message}" if (place := _place(bad)) else bad.message
    if bad.row is not None:
        text += f"; row: {bad.row}"
    hint = "fix the row at its source, or set on_error to skip or dead_letter"
    return PermanentError(DATA_ERROR, text, node=node, hint=hint)


@dataclass(frozen=True, slots=True)
class Rejects:
    """The bad rows of one node and epoch, and a way to get all of them where the report has only the first ones."""

    report: Report
    again: Callable[[], Iterator[BadRow]] | None = None

    def bad_rows(self) -> Iterator[BadRow]:
        return iter(self.report.bad_rows) if self.again is None else self.again()


class BadRows:
    """Deals with the bad rows of a run, node by node."""

    def __init__(self, plan: Plan, application: str, progress: Progress) -> None:
        self._application = application
        self._progress = progress
        self._nodes = {n.id: n.spec for n in plan.nodes}
        self._boxes = {
            id_: LetterBox(node) for id_, node in self._nodes.items() if node.options.on_error is OnError.DEAD_LETTER
        }
        self._warnings = {id_: _Warnings(node.name) for id_, node in self._nodes.items()}

    @property
    def keeps_letters(self) -> bool:
        return bool(self._boxes)

    def keeps(self, node: str) -> bool:
        """Whether the bad rows of a node become dead letters."""
        return node in self._boxes

    def policy(self, node: str) -> OnError:
        return self._nodes[node].options.on_error

    def check(self, node: str, rows: Iterable[BadRow]) -> None:
        """Raises for the first of them, if one is enough to end the run."""
        if self.policy(node) is OnError.FAIL:
            for bad in rows:
                raise rejection(self._nodes[node].name, bad)

    def set_aside(self, epoch: Epoch, node: str, stage: Stage, rejects: Rejects) -> None:
        """Skip or keep these rows; on return the letters are durable.

        Called again for the same epoch and node with the same rows, it leaves the same letters.
        """
        kept = self.keep(epoch, node, stage, rejects.bad_rows())
        self.note(node, kept if node in self._boxes else rejects.report.rejected, rejects.report.bad_rows)

    def note(self, node: str, rejected: int, first: Iterable[BadRow]) -> None:
        """Count rows that are skipped or kept, and tell of the skipped ones; `first` may be some of them."""
        if node not in self._boxes:
            self._warnings[node].skipped(first, rejected)
        if rejected:
            self._progress.passed(node, set_aside=rejected)

    def keep(self, epoch: Epoch, node: str, stage: Stage, rows: Iterator[BadRow]) -> int:
        """Store letters, if the node wants any; on return they are durable. Returns how many."""
        box = self._boxes.get(node)
        if box is None:
            return 0
        first = next(rows, None)
        if first is None:
            box.remove(epoch, stage)
            return 0
        spec, kept = self._nodes[node], 0
        with box.file(epoch, stage) as file:
            for kept, bad in enumerate(chain([first], rows), start=1):
                file.write(letter(bad, spec, stage, epoch, self._application, among=file.id, ordinal=kept))
        became = "1 row became a dead letter" if kept == 1 else f"{kept} rows became dead letters"
        log.warning("%s: %s, in %s", spec.described(), became, file.path)
        return kept


class _Warnings:
    """The first skipped row of every reason at once, then one line a minute with the number since."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._told: dict[str, float] = {}
        self._since: dict[str, int] = {}

    def skipped(self, rows: Iterable[BadRow], count: int) -> None:
        """`rows` may be the first few of `count`."""
        seen = 0
        last: BadRow | None = None
        for bad in rows:
            seen, last = seen + 1, bad
            self._note(bad, 1)
        if last is not None and count > seen:
            self._note(last, count - seen)

    def _note(self, bad: BadRow, rows: int) -> None:
        reason, now = bad.reason, time.monotonic()
        self._since[reason] = self._since.get(reason, 0) + rows
        told = self._told.get(reason)
        if told is not None and now - told < _REMIND_S:
            return
        place = _place(bad)
        log.warning(
            "node '%s' skipped %d %s (%s), the last%s: %s",
            self._node,
            self._since[reason],
            "row" if self._since[reason] == 1 else "rows",
            reason,
            f" at {place}" if place else "",
            bad.message,
        )
        self._told[reason], self._since[reason] = now, 0


def _place(bad: BadRow) -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in bad.source.items())


def _shown(value: Json) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
