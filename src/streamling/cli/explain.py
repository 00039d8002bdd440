"""`streamling explain [CODE]`: what an error code means."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Annotated

import typer

from streamling.cli.app import Command, new_app
from streamling.cli.completion import error_codes
from streamling.errors import CONDITIONS

EXAMPLES = """
streamling explain SQL_TYPES    what it means, and what to do
streamling explain              all codes
"""
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="As printed in brackets; without it all are listed.",
            autocompletion=error_codes,
            show_default=False,
        ),
    ] = None,
) -> int:
    """Say what an error code means."""
    if code is None:
        width = max(map(len, CONDITIONS))
        room = max(40, shutil.get_terminal_size().columns - width - 2)
        for name, condition in sorted(CONDITIONS.items()):
            print(f"{name:<{width}}  {textwrap.shorten(condition.explanation, room, placeholder=' ...')}")
        return 0
    found = CONDITIONS.get(code.strip("[]").upper())
    if found is None:
        from streamling.spec.faults import did_you_mean

        hint = did_you_mean(code, CONDITIONS) or "`streamling explain` lists them all"
        print(f"there is no error code {code!r}; {hint}", file=sys.stderr)
        return 1
    print(found.code)
    for paragraph in (found.explanation, found.remedy):
        if paragraph:
            print()
            print(textwrap.fill(paragraph, min(100, shutil.get_terminal_size().columns)))
    return 0
