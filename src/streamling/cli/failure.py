"""How an error looks on the screen: what, where, why, what to do. A stack trace only when asked for."""

from __future__ import annotations

import shutil
import sys
import textwrap
import traceback

from streamling.cli.excerpt import excerpt
from streamling.errors import BugError, Caution, InvalidPipeline, StreamlingError


def rendered(error: BaseException, *, with_trace: bool = False) -> str:
    """The block printed for a fatal error."""
    problems = error.problems if isinstance(error, InvalidPipeline) else (error,)
    parts = [_one(problem) for problem in problems]
    count = f" ({len(parts)} problems)" if len(parts) > 1 else ""
    text = f"Streamling Error{count}\n" + "\n".join(parts)
    unforeseen = not isinstance(error, StreamlingError) or isinstance(error, BugError)
    if with_trace or unforeseen:
        text += "\n" + "".join(traceback.format_exception(error))
    return text


def rendered_caution(caution: Caution | str) -> str:
    """What stops nothing, with its place."""
    if isinstance(caution, str):
        return f"Warning: {caution}"
    lines = [_fitted(f"Warning: {caution.message} [{caution.code}]")]
    if caution.where:
        lines.append(f"  at {caution.where}")
    if caution.hint:
        lines.append(f"  hint: {caution.hint}")
    return "\n".join(lines)


def chain(error: BaseException) -> str:
    """The message with its causes, outermost first, each once."""
    seen: list[str] = [error.context] if isinstance(error, StreamlingError) and error.context else []
    current: BaseException | None = error
    while current is not None:
        text = current.message if isinstance(current, StreamlingError) else str(current) or type(current).__name__
        if isinstance(current, StreamlingError) and current.quote:
            text += f" ({current.quote})"
        if not any(text in earlier for earlier in seen):
            seen.append(text)
        current = current.__cause__
    return with_hint("; caused by: ".join(seen), error.hint if isinstance(error, StreamlingError) else None)


def with_hint(text: str, hint: str | None) -> str:
    """For reports of one text per problem; a hint the text has already is not repeated."""
    return f"{text} (hint: {hint})" if hint and hint not in text else text


def _one(error: BaseException) -> str:
    if not isinstance(error, StreamlingError):
        return f"Error: {type(error).__name__}: {error}"
    lines = [_fitted(f"Error: {error.message} [{error.code}]")]
    if error.where:
        lines.append(f"  at {error.where}")
        lines.extend(excerpt(error.where))
    elif error.quote or error.node:
        lines.append(f"  {error.quote}" if error.quote else f"  node: {error.node}")
    cause = error.__cause__
    if cause is not None and str(cause).split("\n")[0] not in error.message:
        lines.append(f"  Caused by: {str(cause).splitlines()[0] if str(cause) else type(cause).__name__}")
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    return "\n".join(lines)


def _fitted(headline: str) -> str:
    """Broken at the width of the terminal, if there is one: programs that read our output get whole lines."""
    if not sys.stderr.isatty():
        return headline
    width = max(40, shutil.get_terminal_size().columns)
    return textwrap.fill(headline, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
