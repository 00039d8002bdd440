"""Errors of plugin code as errors of ours, with the place in the plugin's file and without a stack."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import streamling
from streamling.errors import PLUGIN_FAILED, PermanentError, StreamlingError, TransientError, UserError
from streamling.plugin.bases import PluginError

_OURS = str(Path(streamling.__path__[0]))
_STDLIB = sysconfig.get_paths()["stdlib"]


def message_of(error: BaseException) -> str:
    """What happened, in one line, and in which line of the plugin."""
    text = str(error).strip() or "no message"
    if isinstance(error, PluginError):
        return text
    if isinstance(error, StreamlingError):
        return error.message
    place = _place(error)
    if isinstance(error, SyntaxError) and error.lineno is not None:
        text, place = error.msg, f" (line {error.lineno})"
    return f"{type(error).__name__}: {' '.join(text.split())}{place}"


def failure(node: str, described: str, method: str, error: BaseException) -> StreamlingError:
    """What a run ends with when a method of a plugin raised `error`. There is no second try: that is the plugin's."""
    message = f"{described}: {method} failed: {message_of(error)}"
    if isinstance(error, PluginError):
        hint = "the plugin says that this may pass: start again" if error.retriable else None
        flagged = UserError if error.user else PermanentError
        return flagged(PLUGIN_FAILED, message, node=node, hint=hint, cause=error)
    if isinstance(error, StreamlingError) and not isinstance(error, TransientError):
        kind = UserError if isinstance(error, UserError) else PermanentError
        return kind(error.condition, message, node=node, hint=error.hint, cause=error)
    return PermanentError(PLUGIN_FAILED, message, node=node, cause=error)


def _place(error: BaseException) -> str:
    """The innermost line of the plugin's own code; of a library's if there is none."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _passed_over(f.filename)]
    own = [f for f in frames if "site-packages" not in f.filename] or frames
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _passed_over(file: str) -> bool:
    """Frames that tell a plugin's author nothing: ours, and those of Python itself."""
    if file.startswith(_OURS):
        return not file.startswith(f"{_OURS}/plugin/samples")
    return file.startswith("<") or (file.startswith(_STDLIB) and "site-packages" not in file)
