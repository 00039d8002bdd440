"""`streamling plugin list`: all kinds of nodes, what else plugins add, and where each comes from."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from streamling.cli.app import Command, CommandGroup, new_app
from streamling.cli.failure import attempt
from streamling.cli.options import Common, Config, Format, OutputFormat, Traceback, settings_of
from streamling.cli.terminal import size

app = new_app()


@app.callback(cls=CommandGroup, epilog="streamling plugin list    all kinds of sources, transforms and sinks")
def plugin() -> None:
    """List the kinds of nodes, both built-in and from plugins."""


@app.command(
    "list",
    cls=Command,
    epilog="""
streamling plugin list
streamling plugin list --format json | jq -r '.[].name'
""",
)
def list_(
    format_: OutputFormat = Format.TEXT,
    config: Config = None,
    traceback: Traceback = False,
) -> int:
    """List the kinds of nodes, and what else plugins add."""

    def print_kinds() -> int:
        common = Common(config, traceback=traceback)
        if format_ is Format.JSON:
            print(json.dumps([asdict(entry) for entry in _entries(common)], indent=2, ensure_ascii=False))
        else:
            print("\n".join(listing(common)))
        return 0

    return attempt(print_kinds, with_trace=traceback)


@dataclass(frozen=True, slots=True)
class KindEntry:
    """One kind in the list. `module` is its origin: a module, a file or an entry point."""

    role: str
    name: str
    built_in: bool
    module: str
    about: str
    runs: bool = True
    sample: bool = False


def listing(common: Common | None = None) -> Iterator[str]:
    """A paragraph per role, a line per kind; then what else plugins add."""
    entries = _entries(common or Common())
    width = max(len(entry.name) for entry in entries)
    for role in dict.fromkeys(entry.role for entry in entries):
        yield f"{role}s:"
        for entry in (e for e in entries if e.role == role):
            notes = [] if entry.runs else ["can be validated, but not run in this version"]
            notes += [] if entry.built_in else ["a sample" if entry.sample else f"from {entry.module}"]
            about = entry.about + (f" ({'; '.join(notes)})" if notes else "")
            yield f"  {entry.name:<{width}}  {_shorten(about, width + 4)}"


def _shorten(text: str, margin: int) -> str:
    """On a terminal, cut after the last word that fits into the line; a pipe gets the whole text."""
    if not sys.stdout.isatty():
        return text
    from streamling.cli.table import Glyphs

    dots = Glyphs.for_encoding(sys.stdout.encoding).dots
    return textwrap.shorten(text, max(40, size(sys.stdout)[0] - margin), placeholder=dots)


def _entries(common: Common) -> list[KindEntry]:
    """Kinds of nodes, including those of plugins, by role and name; then preprocessors, side outputs and functions."""
    from streamling.connector.kinds import all_kinds
    from streamling.plugin.catalog import plugins
    from streamling.spec.pipeline import Role

    rows = plugins(settings_of(common, level="warn").settings)
    added = [KindEntry(row.kind, row.id, False, row.place, row.doc, sample=row.sample) for row in rows]
    built_in = [
        KindEntry(kind.role.value, kind.name, True, kind.options.__module__, kind.about, kind.runs)
        for kind in all_kinds()
        if kind.built_in
    ]
    order = [*(role.value for role in Role), *(entry.role for entry in added)]
    return sorted((*built_in, *added), key=lambda entry: (order.index(entry.role), entry.name))
