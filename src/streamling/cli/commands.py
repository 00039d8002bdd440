"""Which commands there are, and how `streamling FILE` becomes one. Imports nothing: it runs before the JVM does."""

from __future__ import annotations

from collections.abc import Sequence

COMMANDS = ("run", "validate", "plan", "init", "explain", "state", "plugin", "dev", "doctor", "setup")
"""Each is a module of this package. In the order of the help."""
_OWN_OPTIONS = ("-h", "--help", "--version", "--install-completion", "--show-completion")


def with_command(arguments: Sequence[str]) -> list[str]:
    """The arguments with a command in front: `run`, unless they begin with one or with an option of the program."""
    named = bool(arguments) and arguments[0] in (*COMMANDS, *_OWN_OPTIONS)
    return [*([] if named else ["run"]), *arguments]
