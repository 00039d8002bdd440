"""An error is shown with its message, place, cause and hint; a stack trace only if it is a bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamling.cli.failure import chain, render
from streamling.errors import (
    INTERNAL,
    INVALID_VALUE,
    SINK_FAILED,
    BugError,
    InvalidPipeline,
    PermanentError,
    StreamlingError,
    UserError,
    Where,
)


def raised(error: Exception) -> Exception:
    """The error with a stack trace."""
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_plain_error_is_a_headline_and_its_code() -> None:
    error = raised(PermanentError(SINK_FAILED, "the target said no"))
    assert render(error) == "Streamling Error\nError: the target said no [SINK_FAILED]"


def test_values_in_messages_cannot_send_codes_to_the_terminal() -> None:
    cause = ValueError("bad \x9b2J")
    text = render(PermanentError(SINK_FAILED, "cannot cast '\x1b[31mred\x07'\nto int64", cause=cause, hint="\x1b]0;x"))
    assert all(line.isprintable() for line in text.splitlines())
    assert "cannot cast '\N{REPLACEMENT CHARACTER}[31mred" in text


def test_a_place_is_shown_with_its_line_and_a_caret(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("one\n  key: välue  \n")
    lines = render(UserError(INVALID_VALUE, "wrong", node="n", where=Where(str(file), 2, 8), hint="do it")).splitlines()
    assert lines[2:] == [f"  at {file}:2:8", "     2 |   key: välue", "                ^", "  hint: do it"]
    assert lines[3][lines[4].index("^")] == "v"


@pytest.mark.parametrize("where", [Where("/no/such/file", 3, 4), Where(__file__, 1_000_000, 1)])
def test_a_place_that_cannot_be_shown_is_named(where: Where) -> None:
    assert render(UserError(INVALID_VALUE, "wrong", where=where)).splitlines()[2:] == [f"  at {where}"]


def test_without_a_place_the_node_is_named() -> None:
    assert "  node: orders" in render(PermanentError(SINK_FAILED, "no", node="orders")).splitlines()


def test_a_cause_is_named_in_one_line_unless_the_message_has_it() -> None:
    other = PermanentError(SINK_FAILED, "cannot write", cause=OSError("disk full\nsecond line"))
    assert "  Caused by: disk full" in render(other).splitlines()
    same = PermanentError(SINK_FAILED, "cannot write: disk full", cause=OSError("disk full"))
    assert "Caused by" not in render(same)


def test_several_problems_are_counted_and_all_shown() -> None:
    text = render(InvalidPipeline([UserError(INVALID_VALUE, "first"), UserError(INVALID_VALUE, "second")]))
    assert text.splitlines() == [
        "Streamling Error (2 problems)",
        "Error: first [INVALID_VALUE]",
        "Error: second [INVALID_VALUE]",
    ]


@pytest.mark.parametrize("error", [BugError(INTERNAL, "impossible"), KeyError("oops")])
def test_a_bug_is_shown_with_its_stack(error: Exception) -> None:
    assert "Traceback (most recent call last)" in render(raised(error))


@pytest.mark.parametrize(("with_trace", "shown"), [(True, True), (False, False)])
def test_a_stack_trace_of_other_errors_is_shown_only_when_asked_for(with_trace: bool, shown: bool) -> None:
    error = raised(UserError(INVALID_VALUE, "wrong"))
    assert ("Traceback" in render(error, with_trace=with_trace)) is shown


def test_an_unforeseen_error_is_named_by_its_type() -> None:
    assert "Error: ZeroDivisionError: by zero" in render(raised(ZeroDivisionError("by zero")))


def test_a_chain_has_every_cause_once() -> None:
    inner = OSError("disk full")
    middle = StreamlingError(SINK_FAILED, "cannot write: disk full", cause=inner)
    outer = StreamlingError(SINK_FAILED, "epoch failed", cause=middle)
    assert chain(outer) == "epoch failed; caused by: cannot write: disk full"
    assert chain(ValueError()) == "ValueError"
