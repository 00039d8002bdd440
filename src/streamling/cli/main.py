"""The command line. `streamling FILE` is `streamling run FILE`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from streamling.cli.commands import with_command
from streamling.engine.process.launch import launch_early

# Set by the shell when it asks for completions instead of a run.
_COMPLETING = "_STREAMLING_COMPLETE"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 failed, 2 usage."""
    from streamling.cli.app import called

    return called(sys.argv[1:] if argv is None else argv)


def entry() -> None:
    """The program: launches the JVM of a run before all else, and leaves at once with the exit code.

    At once, because a thread may still hang in a target that does not answer.
    """
    code = 1
    try:
        command, *rest = with_command(sys.argv[1:])
        if command == "run" and _COMPLETING not in os.environ and not {"-h", "--help"} & set(rest):
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
