"""The names of the commands, and how `streamling FILE` becomes one. Imports nothing: it runs before the JVM starts."""

from __future__ import annotations

from collections.abc import Sequence

COMMANDS = (
    "run",
    "top",
    "validate",
    "plan",
    "preview",
    "init",
    "explain",
    "state",
    "dlq",
    "plugin",
    "dev",
    "doctor",
    "setup",
)
"""In the order of the help. Each is a module of this package."""
_OWN_OPTIONS = ("-h", "--help", "--version", "--install-completion", "--show-completion")


def with_command(arguments: Sequence[str]) -> list[str]:
    """The arguments with a command in front: `run`, unless they begin with one or with an option of the program."""
    has_command = bool(arguments) and arguments[0] in (*COMMANDS, *_OWN_OPTIONS)
    return [*([] if has_command else ["run"]), *arguments]
