"""Errors of plugin code as errors of ours, with the line in the plugin's file and without a stack trace."""

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
    """The error in one line, with the line of the plugin that raised it."""
    text = str(error).strip() or "no message"
    if isinstance(error, PluginError):
        return text
    if isinstance(error, StreamlingError):
        return error.message
    location = _location(error)
    if isinstance(error, SyntaxError) and error.lineno is not None:
        text, location = error.msg, f" (line {error.lineno})"
    return f"{type(error).__name__}: {' '.join(text.split())}{location}"


def failure(node: str, described: str, method: str, error: BaseException) -> StreamlingError:
    """The error that ends the run when a method of a plugin raised `error`. It is not retried: plugins do that."""
    message = f"{described}: {method} failed: {message_of(error)}"
    if isinstance(error, PluginError):
        hint = "the plugin says that this error is transient: start again" if error.retriable else None
        kind = UserError if error.user else PermanentError
        found = kind(PLUGIN_FAILED, message, node=node, hint=hint, cause=error)
        found.retriable = error.retriable
        return found
    if isinstance(error, StreamlingError) and not isinstance(error, TransientError):
        kind = UserError if isinstance(error, UserError) else PermanentError
        return kind(error.condition, message, node=node, hint=error.hint, cause=error)
    return PermanentError(PLUGIN_FAILED, message, node=node, cause=error)


def _location(error: BaseException) -> str:
    """The innermost line of the plugin's own code; of a library if there is none."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_internal(f.filename)]
    own = [f for f in frames if "site-packages" not in f.filename] or frames
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _is_internal(file: str) -> bool:
    """Whether a frame tells the author of a plugin nothing: ours, and those of Python itself."""
    if file.startswith(_OURS):
        return not file.startswith(f"{_OURS}/plugin/samples")
    return file.startswith("<") or (file.startswith(_STDLIB) and "site-packages" not in file)
