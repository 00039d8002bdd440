"""What an error of Postgres means: try again, a row is at fault, or it will never work. One table, by SQLSTATE."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Verdict(Enum):
    TRANSIENT = "passing"
    """It may work the next time: the connection, a failover, a lock, a full disk."""
    ROW = "row"
    """A value does not fit, or breaks a constraint: another row would have been taken."""
    PERMANENT = "lasting"


# By class, the first two characters, or by the whole state; the longer one counts.
_VERDICTS = {
    "08": Verdict.TRANSIENT,  # connection
    "53": Verdict.TRANSIENT,  # disk full, out of memory, too many connections
    "57P01": Verdict.TRANSIENT,  # the server is being shut down
    "57P02": Verdict.TRANSIENT,  # it has crashed
    "57P03": Verdict.TRANSIENT,  # it is starting
    "57P05": Verdict.TRANSIENT,  # a session of ours was idle for too long
    "57014": Verdict.TRANSIENT,  # statement timeout
    "40001": Verdict.TRANSIENT,  # serialization
    "40P01": Verdict.TRANSIENT,  # deadlock
    "55P03": Verdict.TRANSIENT,  # lock timeout
    "25006": Verdict.TRANSIENT,  # read only: this is no longer the primary
    "25P03": Verdict.TRANSIENT,  # a transaction of ours stood idle for too long
    "25P04": Verdict.TRANSIENT,  # or took too long
    "21000": Verdict.ROW,  # two rows of a statement are one key there: each alone is taken
    "22": Verdict.ROW,
    "23": Verdict.ROW,
    "54000": Verdict.ROW,  # too long for an index or for a page
}
_ROW_REASONS = {
    "21000": "constraint_violation",
    "22001": "value_too_large",
    "22003": "value_too_large",
    "54000": "value_too_large",
}
_DISTRUST = "certificate verify failed"
# A refused connection has no state. These words of the server do not come and go; all others may.
_LASTING_REFUSALS = (
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "no password supplied",
    "permission denied",
    "server does not support SSL",
    _DISTRUST,
    "root certificate file",
    "not permitted to log in",
    "does not match host name",
    "no such database",  # these two are pgbouncer's
    "no such user",
)
# What helps where an error lasts: by class or by the whole state, the longer one first.
_HINTS = {
    "42501": "give the user the right, then start again: nothing of the epoch was written",
    "42703": "the table was changed while the pipeline ran: a new start compares it with the input",
    "42P01": "the table was dropped while the pipeline ran: a new start makes it",
    "42": "the table may have been changed while the pipeline ran: a new start compares it with the input",
    "P0": "a trigger or function of the database has raised this; mend it, then start again",
}


def classify(state: str | None, text: str) -> Verdict:
    if not state:
        return Verdict.PERMANENT if any(words in text for words in _LASTING_REFUSALS) else Verdict.TRANSIENT
    return _VERDICTS.get(state) or _VERDICTS.get(state[:2]) or Verdict.PERMANENT


def is_untrusted(text: str) -> bool:
    """Whether it was us who refused: nobody we trust vouches for the server."""
    return _DISTRUST in text


def hint_for(state: str | None) -> str | None:
    """What to do about an error that lasts, if that can be said of its state."""
    return (_HINTS.get(state) or _HINTS.get(state[:2])) if state else None


def reject_reason(state: str) -> str:
    """The word of a dead letter for a row that was refused."""
    return _ROW_REASONS.get(state) or ("constraint_violation" if state.startswith("23") else "type_mismatch")


def message_of(error: Any) -> str:
    """What the server said, in one line: message, detail, where; and the state."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is None or not diagnosis.message_primary:
        return " ".join(str(error).split()) or type(error).__name__
    text = str(diagnosis.message_primary)
    if diagnosis.message_detail:
        text += f" ({diagnosis.message_detail})"
    if diagnosis.context:
        text += f"; {' '.join(diagnosis.context.split())}"
    return f"{text} [SQLSTATE {error.sqlstate}]"
