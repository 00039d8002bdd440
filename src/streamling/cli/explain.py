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
streamling explain SQL_TYPES    its meaning, and what to do
streamling explain              list all codes
"""
app = new_app()


@app.command(cls=Command, epilog=EXAMPLES)
def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="Error code, as printed in brackets. Without it, all codes are listed.",
            autocompletion=error_codes,
            show_default=False,
        ),
    ] = None,
) -> int:
    """Explain an error code."""
    if code is None:
        width = max(map(len, CONDITIONS))
        room = max(40, shutil.get_terminal_size().columns - width - 2)
        for name, listed in sorted(CONDITIONS.items()):
            print(f"{name:<{width}}  {textwrap.shorten(listed.explanation, room, placeholder=' ...')}")
        return 0
    condition = CONDITIONS.get(code.strip("[]").upper())
    if condition is None:
        from streamling.spec.faults import did_you_mean

        hint = did_you_mean(code, CONDITIONS) or "`streamling explain` lists them all"
        print(f"there is no error code {code!r}; {hint}", file=sys.stderr)
        return 1
    print(condition.code)
    for paragraph in (condition.explanation, condition.remedy):
        if paragraph:
            print()
            print(textwrap.fill(paragraph, min(100, shutil.get_terminal_size().columns)))
    return 0
