"""The command line. `streamling FILE` is `streamling run FILE`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from streamling.cli.commands import with_command
from streamling.engine.process.launch import launch_early

# The shell sets it when it asks for completions instead of a run.
_COMPLETING = "_STREAMLING_COMPLETE"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code: 0 done, 1 failed, 2 wrong usage."""
    from streamling.cli.app import invoke

    return invoke(sys.argv[1:] if argv is None else argv)


def entry() -> None:
    """The program. A run first launches its JVM, which starts while Python imports the rest.

    It exits at once with the exit code: a thread may still wait for a target that does not answer.
    """
    code = 1
    try:
        command, *rest = with_command(sys.argv[1:])
        starts = command in ("run", "preview") and _COMPLETING not in os.environ
        if starts and not {"-h", "--help"} & set(rest):
            launch_early(rest, quick=command == "preview")
        code = main()
    except SystemExit as exit_:  # usage errors and --help
        code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        code = 1
    except BaseException:  # the program never ends without a message
        traceback.print_exc()
    finally:
        with suppress(OSError):  # the reader has closed it
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    entry()
