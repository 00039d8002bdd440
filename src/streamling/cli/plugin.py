"""`streamling plugin list`: the kinds of nodes there are, what else plugins add, and where each comes from."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated

import typer

from streamling.cli.app import Command, Group, new_app
from streamling.cli.options import Common, Config, Traceback, settings_of
from streamling.cli.terminal import size

app = new_app()


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


@app.callback(cls=Group, epilog="streamling plugin list    all kinds of sources, transforms and sinks")
def plugin() -> None:
    """Look at the kinds of nodes. They are built in or come from plugins."""


@app.command(
    "list",
    cls=Command,
    epilog="""
streamling plugin list
streamling plugin list --format json | jq -r '.[].name'
""",
)
def list_(
    format_: Annotated[Format, typer.Option("--format", help="Text for people, JSON for programs.")] = Format.TEXT,
    config: Config = None,
    traceback: Traceback = False,
) -> int:
    """List the kinds of nodes, and what else plugins add."""
    try:
        common = Common(config, traceback=traceback)
        if format_ is Format.JSON:
            print(json.dumps([asdict(entry) for entry in _entries(common)], indent=2, ensure_ascii=False))
        else:
            print("\n".join(listed(common)))
    except Exception as error:  # the one place where every failure becomes a message and an exit code
        from streamling.cli.failure import show

        show(error, with_trace=traceback)
        return 1
    return 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the list. `module` is where it comes from: a module, a file or an entry point."""

    role: str
    name: str
    built_in: bool
    module: str
    about: str
    runs: bool = True
    sample: bool = False


def listed(common: Common | None = None) -> Iterator[str]:
    """A paragraph per role, a line per kind; then what else plugins add."""
    entries = _entries(common or Common())
    width = max(len(entry.name) for entry in entries)
    for role in dict.fromkeys(entry.role for entry in entries):
        yield f"{role}s:"
        for entry in (e for e in entries if e.role == role):
            notes = [] if entry.runs else ["can be checked, not run yet"]
            notes += [] if entry.built_in else ["a sample" if entry.sample else f"from {entry.module}"]
            about = entry.about + (f" ({'; '.join(notes)})" if notes else "")
            yield f"  {entry.name:<{width}}  {_fitted(about, width + 4)}"


def _fitted(text: str, taken: int) -> str:
    """Cut behind a word where a terminal has no more room; whoever reads a pipe gets all of it."""
    if not sys.stdout.isatty():
        return text
    from streamling.cli.table import Glyphs

    dots = Glyphs.for_encoding(sys.stdout.encoding).dots
    return textwrap.shorten(text, max(40, size(sys.stdout)[0] - taken), placeholder=dots)


def _entries(common: Common) -> list[Entry]:
    """Kinds of nodes by role and name, plugins among them; then preprocessors, side outputs and functions."""
    from streamling.connector.kinds import all_kinds
    from streamling.plugin.catalog import plugins
    from streamling.spec.pipeline import Role

    rows = plugins(settings_of(common, level="warn").settings)
    added = [Entry(row.kind, row.id, False, row.place, row.doc, sample=row.sample) for row in rows]
    built_in = [
        Entry(kind.role.value, kind.name, True, kind.options.__module__, kind.about, kind.runs)
        for kind in all_kinds()
        if kind.built_in
    ]
    order = [*(role.value for role in Role), *(entry.role for entry in added)]
    return sorted((*built_in, *added), key=lambda entry: (order.index(entry.role), entry.name))
