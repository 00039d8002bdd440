"""The command line. `streamling FILE` is `streamling run FILE`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from streamling import __version__

_COMMANDS = {
    "run": "run a pipeline",
    "validate": "check a pipeline without running it",
    "state": "look at stored positions, or forget them",
    "setup": "prepare this machine: train the class archive that makes starts fast",
}
_EXAMPLES = """examples:
  streamling run pipeline.yaml          run until the input ends or Ctrl-C
  streamling pipeline.yaml --validate   check it and print a JSON report
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
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] not in (*_COMMANDS, "-h", "--help", "--version"):
        arguments.insert(0, "run")
    options = parser().parse_args(arguments)
    code: int = options.execute(options)
    return code


def entry() -> None:
    """The program: leaves at once with the exit code, whatever threads still hang in a target that does not answer."""
    code = 1
    try:
        code = main()
    except SystemExit as leaving:  # usage errors and --help
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    finally:
        with suppress(OSError):  # nobody reads what we say any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    entry()
