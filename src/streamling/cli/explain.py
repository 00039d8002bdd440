"""`streamling explain [CODE]`: what an error code means."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap

from streamling.errors import CONDITIONS
from streamling.spec.faults import did_you_mean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", nargs="?", metavar="CODE", help="as printed in brackets; without it all are listed")


def execute(options: argparse.Namespace) -> int:
    if options.code is None:
        width = max(map(len, CONDITIONS))
        room = max(40, shutil.get_terminal_size().columns - width - 2)
        for code, condition in sorted(CONDITIONS.items()):
            print(f"{code:<{width}}  {textwrap.shorten(condition.explanation, room, placeholder=' ...')}")
        return 0
    found = CONDITIONS.get(options.code.strip("[]").upper())
    if found is None:
        hint = did_you_mean(options.code, CONDITIONS) or "`streamling explain` lists them all"
        print(f"there is no error code {options.code!r}; {hint}", file=sys.stderr)
        return 1
    print(found.code)
    for paragraph in (found.explanation, found.remedy):
        if paragraph:
            print()
            print(textwrap.fill(paragraph, min(100, shutil.get_terminal_size().columns)))
    return 0
