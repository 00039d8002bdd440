"""The command line. `streamling FILE` is `streamling run FILE`."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from streamling import __version__
from streamling.engine.launch import launch_early

_COMMANDS = {
    "run": "run a pipeline",
    "validate": "check a pipeline without running it",
    "plan": "show a pipeline's graph, and what is known of each node",
    "explain": "say what an error code means",
    "state": "look at stored positions, or forget them",
    "setup": "prepare this machine: train the class archive that makes starts fast",
}
_EXAMPLES = """examples:
  streamling run pipeline.yaml          run until the input ends or Ctrl-C
  streamling pipeline.yaml --validate   check it and print a JSON report
  streamling plan pipeline.yaml         its graph, columns, keys and guarantees
  streamling explain SQL_TYPES          what an error code means, and what to do
  streamling state list                 where the sources stand
  streamling setup                      once per machine; halves the time to the first row
"""


def parser() -> argparse.ArgumentParser:
    """All commands; each module of this package named after one adds its own arguments."""
    top = argparse.ArgumentParser(
        prog="streamling",
        description="Run data pipelines written in YAML on Spark.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"streamling {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        module = import_module(f"streamling.cli.{name}")
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 failed, 2 usage."""
    options = parser().parse_args(_with_command(sys.argv[1:] if argv is None else argv))
    code: int = options.execute(options)
    return code


def _with_command(arguments: Sequence[str]) -> list[str]:
    named = bool(arguments) and arguments[0] in (*_COMMANDS, "-h", "--help", "--version")
    return [*([] if named else ["run"]), *arguments]


def entry() -> None:
    """The program: launches the JVM of a run before all else, and leaves at once with the exit code.

    At once, because a thread may still hang in a target that does not answer.
    """
    code = 1
    try:
        command, *rest = _with_command(sys.argv[1:])
        if command == "run":
            launch_early(rest)
        code = main()
    except SystemExit as leaving:  # usage errors and --help
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except BrokenPipeError:  # who reads our output has had enough
        code = 1
    except BaseException:  # nothing may end this program without a word
        traceback.print_exc()
    finally:
        with suppress(OSError):  # nobody reads what we say any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    entry()
