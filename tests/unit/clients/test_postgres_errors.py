"""Whether an error of Postgres passes, lies in a row or lasts: by its state, or by the words of who refused a login."""

from __future__ import annotations

import pytest

from streamling.clients.postgres_errors import Verdict, classify, hint_for, reject_reason


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (
            "08006 08P01 53100 53300 57P01 57P02 57P03 57P05 57014 40001 40P01 55P03 25006 25P03 25P04",
            Verdict.TRANSIENT,
        ),
        ("21000 22001 22003 22P02 22P05 22021 23502 23503 23505 23514 54000", Verdict.ROW),
        ("42501 42703 42P01 42804 P0001 28P01 3D000 0A000 XX000 57P04 54001", Verdict.PERMANENT),
    ],
)
def test_the_state_decides(states: str, expected: Verdict) -> None:
    assert {state: classify(state, "permission denied") for state in states.split()} == dict.fromkeys(
        states.split(), expected
    )


@pytest.mark.parametrize(
    "text",
    [
        'FATAL:  password authentication failed for user "me"',
        "FATAL:  SASL authentication failed",
        'FATAL:  database "nowhere" does not exist',
        "FATAL:  no such database: nowhere",
        "FATAL:  no such user: me",
        'FATAL:  role "me" is not permitted to log in',
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "me", database "db", no encryption',
        "server does not support SSL, but SSL was required",
        "SSL error: certificate verify failed",
        'server certificate for "one" does not match host name "other"',
        'root certificate file "/home/me/.postgresql/root.crt" does not exist',
    ],
)
def test_a_refused_login_lasts(text: str) -> None:
    assert classify(None, f'connection to server at "10.0.0.2", port 5432 failed: {text}') is Verdict.PERMANENT


@pytest.mark.parametrize(
    "text",
    [
        "Connection refused",
        "timeout expired",
        "FATAL:  the database system is starting up",
        "FATAL:  sorry, too many clients already",
        "FATAL:  no more connections allowed (max_client_conn)",
        "FATAL:  server login has been failing, try again later (server_login_retry)",
        "could not translate host name",
        "server closed the connection unexpectedly",
    ],
)
def test_a_login_that_was_not_answered_passes(text: str) -> None:
    assert classify(None, text) is Verdict.TRANSIENT


def test_the_longer_state_has_the_better_advice() -> None:
    assert hint_for("42501") != hint_for("42804")
    assert "trigger" in (hint_for("P0001") or "")
    assert hint_for("XX000") is None
    assert hint_for(None) is None


def test_a_refused_row_has_one_of_a_few_words() -> None:
    states = ("22001", "22003", "54000", "22P02", "22P05", "23502", "23505", "21000")
    assert [reject_reason(state) for state in states] == [
        *["value_too_large"] * 3,
        *["type_mismatch"] * 2,
        *["constraint_violation"] * 3,
    ]
