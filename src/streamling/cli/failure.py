"""Errors on the screen: message, place, cause, hint, all without secrets. Stack traces only on request."""

from __future__ import annotations

import select
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from streamling.cli.excerpt import WIDTH, excerpt
from streamling.cli.terminal import Fragment, print_styled, printable, size
from streamling.errors import CONFIG_FILE, SETTING_INVALID, BugError, Caution, InvalidPipeline, StreamlingError
from streamling.spec.mask import mask_text

_Line = list[Fragment]
_ERROR, _WARNING, _HINT, _PLACE = "bold red", "bold yellow", "cyan", "dim"


def attempt(
    action: Callable[[], int],
    *,
    with_trace: bool,
    interrupted: int | None = None,
    amend: Callable[[Exception], None] | None = None,
) -> int:
    """Run a command and return its exit code; a failure is shown and gives 1. Every command does its work in here.

    interrupted  the exit code after Ctrl-C; without it, KeyboardInterrupt is raised
    amend        called with the error before it is shown
    """
    try:
        return action()
    except KeyboardInterrupt:
        if interrupted is None:
            raise
        return interrupted
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        if isinstance(error, BrokenPipeError) and is_closed(sys.stdout):
            raise  # the reader of our output has closed it: not an error to show
        if amend is not None:
            amend(error)
        show(error, with_trace=with_trace)
        return 1


def is_closed(output: TextIO) -> bool:
    """Whether the other end of the pipe is closed."""
    poll = select.poll()
    poll.register(output.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def show(error: BaseException, *, with_trace: bool = False) -> None:
    """Print a fatal error to standard error."""
    sys.stdout.flush()
    print_styled(sys.stderr, _without_controls(_error_lines(error, with_trace=with_trace)))


def show_caution(caution: Caution | str) -> None:
    """Print a warning to standard error."""
    print_styled(sys.stderr, _without_controls(_caution_lines(caution)))


def render(error: BaseException, *, with_trace: bool = False) -> str:
    """The text that `show` prints, without colours."""
    lines = _without_controls(_error_lines(error, with_trace=with_trace))
    return "\n".join("".join(text for text, _ in line) for line in lines)


def _without_controls(lines: Iterable[_Line]) -> Iterator[_Line]:
    """Messages quote values of rows, which may contain codes that a terminal obeys."""
    return ([(printable(text), style) for text, style in line] for line in lines)


def chain(error: BaseException) -> str:
    """The message of an error and those of its causes in one line, outermost first, without repetitions."""
    seen: list[str] = [error.context] if isinstance(error, StreamlingError) and error.context else []
    current: BaseException | None = error
    while current is not None:
        text = current.message if isinstance(current, StreamlingError) else str(current) or type(current).__name__
        if isinstance(current, StreamlingError) and current.quote:
            text += f" ({current.quote})"
        if not any(text in earlier for earlier in seen):
            seen.append(text)
        current = current.__cause__
    return with_hint(mask_text("; caused by: ".join(seen)), error.hint if isinstance(error, StreamlingError) else None)


def with_hint(text: str, hint: str | None) -> str:
    """For reports with one text per problem; a hint that the text contains is not repeated."""
    return f"{text} (hint: {hint})" if hint and hint not in text else text


def _error_lines(error: BaseException, *, with_trace: bool) -> Iterator[_Line]:
    problems = error.problems if isinstance(error, InvalidPipeline) else (error,)
    count = f" ({len(problems)} problems)" if len(problems) > 1 else ""
    yield [(f"Streamling Error{count}", _ERROR)]
    for problem in problems:
        yield from _problem_lines(problem)
    is_bug = not isinstance(error, StreamlingError) or isinstance(error, BugError)
    if with_trace or is_bug:
        for line in mask_text("".join(traceback.format_exception(error))).splitlines():
            yield [(line, "")]
        yield [("", "")]


def _problem_lines(error: BaseException) -> Iterator[_Line]:
    if not isinstance(error, StreamlingError):
        yield [("Error:", _ERROR), (mask_text(f" {type(error).__name__}: {error}"), "")]
        return
    yield from _headline("Error:", _ERROR, error.message, error.code)
    if error.where:
        yield [(f"  at {error.where}", _PLACE)]
        yield from _excerpt_lines(error)
    elif error.quote or (error.node and f"'{error.node}'" not in error.message):
        yield [(f"  {mask_text(error.quote)}" if error.quote else f"  node: {error.node}", _PLACE)]
    cause = error.__cause__
    if cause is not None and _gist(cause) not in error.message:
        text = mask_text(str(cause)).strip() or type(cause).__name__
        yield [(f"  Caused by: {text.splitlines()[0]}", "")]
    yield from _hint_lines(error.hint)


def _gist(cause: BaseException) -> str:
    """The part of a cause that messages repeat; of an OSError the reason without the file name."""
    reason = cause.strerror if isinstance(cause, OSError) else None
    return reason or str(cause).split("\n")[0]


def _excerpt_lines(error: StreamlingError) -> Iterator[_Line]:
    from streamling.spec.settings import public_keys  # not before an error needs it: it imports all settings

    if error.where is None:
        return
    room = size(sys.stderr)[0] - _MARGIN if sys.stderr.isatty() else WIDTH
    # Most values of a settings file are not needed to find the mistake, and any of them may be a misplaced password.
    public = public_keys() if error.condition in (CONFIG_FILE, SETTING_INVALID) else None
    lines = excerpt(error.where, min(WIDTH, max(room, _LEAST_EXCERPT)), public)
    for text, caret in zip(lines[::2], lines[1::2], strict=True):
        number, bar, rest = text.partition("|")
        yield [(number + bar, _PLACE), (rest, "")]
        yield [(caret, _ERROR)]


# Left of an excerpt are the line number, a bar and spaces.
_MARGIN, _LEAST_EXCERPT = 10, 30


def _caution_lines(caution: Caution | str) -> Iterator[_Line]:
    if isinstance(caution, str):
        yield [("Warning:", _WARNING), (f" {mask_text(caution)}", "")]
        return
    yield from _headline("Warning:", _WARNING, caution.message, caution.code)
    if caution.where:
        yield [(f"  at {caution.where}", _PLACE)]
    yield from _hint_lines(caution.hint)


def _headline(word: str, style: str, message: str, code: str) -> Iterator[_Line]:
    for number, line in enumerate(_wrap(f"{word} {mask_text(message)} [{code}]")):
        head, rest = (word, line.removeprefix(word)) if number == 0 else ("", line)
        text, bracket, tail = rest.rpartition(f"[{code}]")
        yield [(head, style), (text, ""), (bracket, _PLACE), (tail, "")] if bracket else [(head, style), (rest, "")]


def _hint_lines(hint: str | None) -> Iterator[_Line]:
    for line in _wrap(f"  hint: {mask_text(hint)}") if hint else ():
        yield [(line, _HINT)]


def _wrap(text: str) -> list[str]:
    """Lines of at most the width of the terminal; without a terminal whole lines, for programs that read them."""
    if not sys.stderr.isatty():
        return text.split("\n")
    room = max(40, size(sys.stderr)[0])
    indent = "    " if text.startswith(" ") else "  "
    return [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        or [""]
    ]
