"""What an error of Postgres means: retry, reject a row, or give up. One table, by SQLSTATE."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from streamling.spec.mask import mask_text


class Verdict(Enum):
    TRANSIENT = "transient"
    """A retry may succeed: the connection, a failover, a lock, a full disk."""
    ROW = "row"
    """A value does not fit, or breaks a constraint: the table would take other rows."""
    PERMANENT = "permanent"


# By class, the first two characters, or by the whole SQLSTATE; the longer one wins.
_VERDICTS = {
    "08": Verdict.TRANSIENT,  # connection
    "53": Verdict.TRANSIENT,  # disk full, out of memory, too many connections
    "57P01": Verdict.TRANSIENT,  # the server is being shut down
    "57P02": Verdict.TRANSIENT,  # it has crashed
    "57P03": Verdict.TRANSIENT,  # it is starting
    "57P05": Verdict.TRANSIENT,  # our session was idle for too long
    "57014": Verdict.TRANSIENT,  # statement timeout
    "40001": Verdict.TRANSIENT,  # serialization
    "40P01": Verdict.TRANSIENT,  # deadlock
    "55P03": Verdict.TRANSIENT,  # lock timeout
    "25006": Verdict.TRANSIENT,  # read only: this is no longer the primary
    "25P03": Verdict.TRANSIENT,  # our transaction was idle for too long
    "25P04": Verdict.TRANSIENT,  # or took too long
    "21000": Verdict.ROW,  # two rows of a statement have one key in the table: each alone fits
    "22": Verdict.ROW,
    "23": Verdict.ROW,
    "54000": Verdict.ROW,  # too large for an index or for a page
}
_ROW_REASONS = {
    "21000": "constraint_violation",
    "22001": "value_too_large",
    "22003": "value_too_large",
    "54000": "value_too_large",
}
# A row refers to one that is not there, or others refer to one that is deleted.
_FOREIGN_KEY = ("23503", "23001")
_UNTRUSTED = "certificate verify failed"
# In the context of an error: the text of a statement, before the line of the function that ran it.
_STATEMENT = re.compile(r'SQL statement ".*?"\n(?=PL/pgSQL function )', re.DOTALL)
# A refused connection has no SQLSTATE. These messages of the server are permanent errors; all others are transient.
_PERMANENT_MESSAGES = (
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "no password supplied",
    "permission denied",
    "server does not support SSL",
    _UNTRUSTED,
    "root certificate file",
    "not permitted to log in",
    "does not match host name",
    "no such database",  # these two are pgbouncer's
    "no such user",
)
# Hints for permanent errors: by class or by the whole SQLSTATE, the longer one wins.
_HINTS = {
    "42501": "grant the right to the user, then start again: nothing of the epoch was written",
    "42703": "the table was changed while the pipeline was running; a restart compares it with the input",
    "42P01": "the table was dropped while the pipeline was running; a restart creates it",
    "42": "the table may have been changed while the pipeline was running; a restart compares it with the input",
    "P0": "a trigger or function of the database raised this error; fix it, then start again",
}


def classify(state: str | None, text: str) -> Verdict:
    if not state:
        return Verdict.PERMANENT if any(message in text for message in _PERMANENT_MESSAGES) else Verdict.TRANSIENT
    return _VERDICTS.get(state) or _VERDICTS.get(state[:2]) or Verdict.PERMANENT


def is_untrusted(text: str) -> bool:
    """Whether the connection failed because the certificate of the server is not trusted."""
    return _UNTRUSTED in text


def hint_for(state: str | None) -> str | None:
    """What to do about a permanent error, where its SQLSTATE tells."""
    return (_HINTS.get(state) or _HINTS.get(state[:2])) if state else None


def is_foreign_key(state: str) -> bool:
    """Whether a row is rejected because of a row of this or another table that refers to it, or that it refers to."""
    return state in _FOREIGN_KEY


def reject_reason(state: str) -> str:
    """The reason code of a rejected row, as dead letters have it."""
    return _ROW_REASONS.get(state) or ("constraint_violation" if state.startswith("23") else "type_mismatch")


def message_of(error: Any) -> str:
    """The error of the server in one line, without secrets: message, detail, context, SQLSTATE."""
    return mask_text(_message_of(error))


def _message_of(error: Any) -> str:
    diagnosis = getattr(error, "diag", None)
    if diagnosis is None or not diagnosis.message_primary:
        return " ".join(str(error).split()) or type(error).__name__
    text = str(diagnosis.message_primary)
    if diagnosis.message_detail:
        text += f" ({diagnosis.message_detail})"
    if diagnosis.context:
        text += f"; {' '.join(_STATEMENT.sub('', diagnosis.context).split())}"
    return f"{text} [SQLSTATE {error.sqlstate}]"
