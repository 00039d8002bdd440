"""Bad rows: the `on_error` of their node decides what happens to them.

`fail` ends the run and names the row. `skip` counts it and logs it from time to time. `dead_letter` stores it durably
before the epoch is finalized: positions never move past a row that was neither delivered nor stored.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from streamling.connector import BadRow, Epoch, Json, Report
from streamling.engine.protocol.progress import Progress
from streamling.errors import ALL_ROWS_REJECTED, DATA_ERROR, TOO_MANY_BAD_ROWS, PermanentError
from streamling.letters.letter import Letter, LetterBatch, RejectStage
from streamling.letters.store import LetterStore
from streamling.plan.pipeline import Plan
from streamling.spec.pipeline.options import OnError

log = logging.getLogger(__name__)

# Bad input must be noticed, but must not flood the log.
_REMIND_S = 60.0
# Of a row in a message, so many characters.
_MAX_ROW = 1000


def rejection(node: str, bad: BadRow) -> PermanentError:
    """The error of a bad row under `on_error: fail`."""
    text = f"{place}: {bad.message}" if (place := _format_place(bad)) else bad.message
    if bad.row is not None:
        row = json.dumps(bad.row, ensure_ascii=False)
        text += f"; row: {row if len(row) <= _MAX_ROW else f'{row[:_MAX_ROW]}...'}"
    hint = "fix the row at its source, or set on_error to skip or dead_letter"
    return PermanentError(DATA_ERROR, text, node=node, hint=hint)


@dataclass(frozen=True, slots=True)
class Rejects:
    """The bad rows of one node and epoch. `find_all` finds all of them if the report has only the first ones."""

    report: Report
    find_all: Callable[[], Iterator[BadRow]] | None = None

    def bad_rows(self) -> Iterator[BadRow]:
        return iter(self.report.bad_rows) if self.find_all is None else self.find_all()


class BadRows:
    """Applies the `on_error` of every node to its bad rows."""

    def __init__(
        self,
        plan: Plan,
        application: str,
        progress: Progress,
        stores: Mapping[str, LetterStore],
    ) -> None:
        """`stores`: by node, for those with `on_error: dead_letter`."""
        self._application = application
        self._progress = progress
        self._nodes = {n.id: n.spec for n in plan.nodes}
        self._stores = stores
        self._uncounted: Counter[tuple[str, RejectStage, str]] = Counter()
        """Rows by node, stage and reason, of an epoch that is not finalized."""
        self._warnings = {id_: _Warnings(node.name) for id_, node in self._nodes.items()}

    @property
    def keeps_letters(self) -> bool:
        return bool(self._stores)

    def keeps_letters_of(self, node: str) -> bool:
        """Whether the bad rows of a node become dead letters."""
        return node in self._stores

    def policy(self, node: str) -> OnError:
        return self._nodes[node].options.on_error

    def check(self, node: str, rows: Iterable[BadRow]) -> None:
        """Raises PermanentError for the first row if the node's `on_error` is `fail`."""
        if self.policy(node) is OnError.FAIL:
            for bad in rows:
                raise rejection(self._nodes[node].name, bad)

    def reject(self, epoch: Epoch, node: str, stage: RejectStage, rejects: Rejects) -> None:
        """Skip these rows, or store them as dead letters, which are durable on return.

        It is idempotent: called again for the same epoch and node with the same rows, it stores the same letters.
        """
        known = list(rejects.report.bad_rows)
        if node not in self._stores:
            self.count(node, stage, rejects.report.rejected, known)
            return
        reasons: Counter[str] = Counter()
        stored = self.store_letters(epoch, node, stage, _counting(rejects.bad_rows(), reasons))
        self._count(node, stage, stored, reasons)

    def count(self, node: str, stage: RejectStage, rejected: int, first: Sequence[BadRow]) -> None:
        """Count skipped or stored rows, and log skipped ones; `first` may be some of them."""
        if node not in self._stores:
            self._warnings[node].add(first, rejected)
        self._count(node, stage, rejected, Counter(bad.reason for bad in first))

    def _count(self, node: str, stage: RejectStage, rejected: int, reasons: Counter[str]) -> None:
        """`reasons` may be those of other than `rejected` rows: the last one stands for the difference."""
        if not rejected:
            return
        last = next(reversed(reasons), "")
        if (missing := rejected - reasons.total()) < 0:
            reasons, missing = Counter(), rejected
        for reason, count in (reasons + Counter({last: missing})).items():
            self._uncounted[node, stage, reason] += count

    def rejected(self, node: str) -> int:
        """The bad rows of a node in the epoch that is not finalized."""
        return sum(count for (of, _, _), count in self._uncounted.items() if of == node)

    def begin(self) -> None:
        """An epoch begins, or begins anew."""
        self._uncounted.clear()

    def finalized(self) -> None:
        """The epoch is finalized: its bad rows are not counted again."""
        for (node, stage, reason), count in self._uncounted.items():
            name = "rows_dead_lettered" if node in self._stores else "rows_skipped"
            self._progress.meter(node).reject(name, count, stage=stage.value, reason=reason)
        self._uncounted.clear()

    def store_letters(self, epoch: Epoch, node: str, stage: RejectStage, rows: Iterator[BadRow]) -> int:
        """Store rows as dead letters, durable on return, if the node's `on_error` says so. Returns how many."""
        store = self._stores.get(node)
        if store is None:
            return 0
        spec = self._nodes[node]
        batch = LetterBatch(spec, stage, epoch, self._application)
        first = next(rows, None)
        if first is None:
            store.remove(batch)
            return 0
        count = store.put(batch, _letters(batch, chain([first], rows)))
        if not count:
            return 0
        became = "1 row became a dead letter" if count == 1 else f"{count} rows became dead letters"
        log.warning("%s: %s, in %s", spec.described(), became, store.place)
        return count


def _counting(rows: Iterable[BadRow], reasons: Counter[str]) -> Iterator[BadRow]:
    for bad in rows:
        reasons[bad.reason] += 1
        yield bad


def _letters(batch: LetterBatch, rows: Iterable[BadRow]) -> Iterator[Letter]:
    """Raises PermanentError if there are more than the node's `dead_letter.max`: then nothing is stored."""
    destination = batch.node.options.dead_letter
    limit = destination.max if destination is not None else None
    for ordinal, bad in enumerate(rows, start=1):
        if limit is not None and ordinal > limit:
            noun = "bad row" if limit == 1 else "bad rows"
            message = f"an epoch has more than {limit} {noun} ('dead_letter.max'); the last: {bad.message}"
            hint = "fix the cause, or raise 'dead_letter.max'; positions have not moved"
            raise PermanentError(TOO_MANY_BAD_ROWS, message, node=batch.node.name, hint=hint)
        yield batch.letter(bad, ordinal)


class RejectStreak:
    """Rows in a row that a sink has rejected in the same way, without accepting one: the target is at fault."""

    def __init__(self, node: str, limit: int) -> None:
        """`limit` 0: no limit."""
        self._node = node
        self._limit = limit
        self._cause: tuple[str, str] | None = None
        self._count = 0

    def check(self, accepted: int, rejected: Sequence[BadRow]) -> None:
        """Raises PermanentError if an epoch with these rows would make the streak reach the limit."""
        count = self._continued(accepted, rejected)
        if self._limit and count >= self._limit:
            last = rejected[-1]
            raise PermanentError(
                ALL_ROWS_REJECTED,
                f"the last {count} rows were all rejected in the same way ({last.reason}), and none was accepted, the "
                f"last: {last.message}",
                node=self._node,
                hint="change the target if it is at fault. If the rows are: raise epoch.max_same_rejects, or set it to "
                "0, and on_error decides about them",
            )

    def add(self, accepted: int, rejected: Sequence[BadRow]) -> None:
        """Count the rows of an epoch that is committed."""
        if accepted or rejected:
            self._count = self._continued(accepted, rejected)
            self._cause = _cause(rejected[-1]) if rejected else None

    def _continued(self, accepted: int, rejected: Sequence[BadRow]) -> int:
        causes = {_cause(bad) for bad in rejected}
        if accepted or len(causes) != 1:
            return 0
        return len(rejected) + (self._count if causes == {self._cause} else 0)


def _cause(bad: BadRow) -> tuple[str, str]:
    return bad.reason, bad.cause


class _Warnings:
    """Logs the first skipped row of every reason immediately, then one line a minute with the number since."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._last_logged: dict[str, float] = {}
        self._since: dict[str, int] = {}

    def add(self, rows: Iterable[BadRow], count: int) -> None:
        """`rows` may be the first few of `count` skipped rows."""
        number = 0
        last: BadRow | None = None
        for bad in rows:
            number, last = number + 1, bad
            self._add_reason(bad, 1)
        if last is not None and count > number:
            self._add_reason(last, count - number)

    def _add_reason(self, bad: BadRow, rows: int) -> None:
        reason, now = bad.reason, time.monotonic()
        self._since[reason] = self._since.get(reason, 0) + rows
        last_logged = self._last_logged.get(reason)
        if last_logged is not None and now - last_logged < _REMIND_S:
            return
        place = _format_place(bad)
        log.warning(
            "node '%s' skipped %d %s (%s), the last%s: %s",
            self._node,
            self._since[reason],
            "row" if self._since[reason] == 1 else "rows",
            reason,
            f" at {place}" if place else "",
            bad.message,
        )
        self._last_logged[reason] = now
        self._since[reason] = 0


def _format_place(bad: BadRow) -> str:
    return ", ".join(f"{name} {_format_value(value)}" for name, value in bad.source.items())


def _format_value(value: Json) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
